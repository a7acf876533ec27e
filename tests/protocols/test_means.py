"""Means over images as measurements: likelihoods, and capsules that stay long."""

import numpy as np
import pytest
from support import Recorded, fill

from capszoo.config import ConfigError
from capszoo.protocols import LikelihoodProtocol, SparsityProtocol, Subject, evaluate, get_protocol
from capszoo.zoo.recipes import parse_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")

INFERRING = {"name": "predictive_coding", "channels": 4, "primary_types": 2, "decoder": False}
GENERATIVE = {"name": "attention", "objects": 3, "object_dim": 4, "channels": 2, "hidden": 8}


def subject_of(model, scale):
    recipe = parse_recipe("tiny", {"model": model, "data": {"name": "mnist", "validation": 50}})
    return Subject("tiny", recipe, fill(recipe.build(), scale=scale))


@pytest.fixture(scope="module")
def inferring(data):
    return subject_of(INFERRING, 0.2)


@pytest.fixture(scope="module")
def generative(data):
    return subject_of(GENERATIVE, 0.05)


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("likelihood", {"images": 1}),
        ("likelihood_gain", {"samples": 0}),
        ("likelihood_comparison", {"images": 0}),
        ("likelihood_comparison", {"batch_size": 0}),
        ("active_inference", {"images": 0}),
        ("sparsity", {"images": 0}),
        ("sparsity", {"steps": 0}),
    ],
)
def test_as_many_images_are_needed_as_a_number_takes(protocol, options):
    (name,) = options
    with pytest.raises(ConfigError, match=f"{name} must be at least"):
        get_protocol(protocol, options)


@pytest.mark.slow
def test_likelihoods_are_those_of_the_report(generative):
    report = LikelihoodProtocol(images=12, samples=50).measure([generative])
    measured = get_protocol("likelihood", {"images": 12}).measure([generative])
    assert measured.value == pytest.approx(report.models["tiny"]["importance"], abs=0.05)
    assert (measured.n, measured.wrong, measured.unit) == (12, None, "nats per dimension")
    gain = get_protocol("likelihood_gain", {"images": 12}).measure([generative])
    assert gain.value == pytest.approx(report.models["tiny"]["gain"], abs=0.05)
    assert (gain.interval[1] - gain.interval[0]) / 2 == pytest.approx(
        report.models["tiny"]["interval"], rel=0.3
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "condition"),
    [
        ("active_feed_forward", "feed-forward"),
        ("active_inference", "inference"),
        ("active_inference_l1", "inference with L1"),
    ],
)
def test_active_capsules_are_those_of_the_report(inferring, protocol, condition):
    measured = get_protocol(protocol, {"images": 6}).measure([inferring])
    layer = SparsityProtocol(images=6).measure([inferring]).layers["class_capsules"]
    assert measured.value == pytest.approx(layer[condition].active)
    assert (measured.n, measured.unit) == (6, "of 10")


def test_active_capsules_are_counted_of_the_classes_there_are(inferring, monkeypatch):
    protocol = get_protocol("active_feed_forward")
    monkeypatch.setattr(type(protocol), "values", lambda self, subject, progress: np.array([1.0, 2.0]))
    monkeypatch.setattr(type(inferring.recipe.data), "num_classes", 7)
    assert protocol.measure([inferring]).unit == "of 7"


def test_a_mean_is_written_with_its_unit(generative):
    protocol = get_protocol("likelihood", {"images": 10, "samples": 1})
    progress = Recorded()
    measured = protocol.measure([generative], progress=progress)
    assert (progress.begun, progress.counts) == ([("likelihood", 10, 0)], [10])
    text = measured.sentence()
    assert f"images {measured.value:.3f} nats per dimension (mean of 10, 95 % interval" in text
    assert text.endswith("on mnist test; the paper has no number")


@pytest.mark.parametrize(
    ("protocol", "needed"), [("likelihood", "attention"), ("active_inference", "predictive_coding")]
)
def test_a_model_without_such_a_number_is_refused(protocol, needed):
    recipe = parse_recipe("x", {"model": {"name": "dynamic", "channels": 4}, "data": {"name": "mnist"}})
    with pytest.raises(ConfigError, match=f"such as .*{needed}.*. Received: DynamicCapsNet"):
        evaluate(None, recipe, protocol)
