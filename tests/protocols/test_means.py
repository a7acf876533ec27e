"""Means over images as measurements: likelihoods, and capsules that stay long."""

import numpy as np
import pytest
from support import Recorded, fill

from capszoo.config import ConfigError
from capszoo.protocols import Subject, evaluate, means, measure_likelihood, measure_sparsity
from capszoo.protocols.means import Mean
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


def test_the_interval_is_that_of_a_mean():
    mean = Mean("heights", np.array([1.0, 2.0, 3.0, 4.0]), "m")
    assert mean.value == 2.5
    # the standard error is sqrt(5 / 3) / 2
    assert mean.interval == pytest.approx((2.5 - 1.96 * 0.6455, 2.5 + 1.96 * 0.6455), abs=1e-3)


def test_likelihoods_are_those_of_the_report(generative, monkeypatch):
    monkeypatch.setattr(means, "OF_LIKELIHOOD", 12)
    report = measure_likelihood([generative], images=12, samples=50)
    measured = evaluate(generative.model, generative.recipe, "likelihood")
    assert measured.value == pytest.approx(report.models["tiny"]["importance"], abs=0.05)
    assert (measured.n, measured.wrong, measured.unit) == (12, None, "nats a pixel")
    gain = evaluate(generative.model, generative.recipe, "likelihood_gain")
    assert gain.value == pytest.approx(report.models["tiny"]["gain"], abs=0.05)
    assert (gain.interval[1] - gain.interval[0]) / 2 == pytest.approx(
        report.models["tiny"]["interval"], rel=0.3
    )


@pytest.mark.parametrize(
    ("protocol", "condition"),
    [
        ("active_feed_forward", "feed-forward"),
        ("active_inference", "inference"),
        ("active_inference_l1", "inference with L1"),
    ],
)
def test_active_capsules_are_those_of_the_report(inferring, monkeypatch, protocol, condition):
    monkeypatch.setattr(means, "OF_INFERENCE", 6)
    measured = evaluate(inferring.model, inferring.recipe, protocol)
    layer = measure_sparsity(inferring, 6).layers["class_capsules"]
    assert measured.value == pytest.approx(layer[condition].active)
    assert measured.n == 6


def test_a_mean_is_written_with_its_unit(generative, monkeypatch):
    monkeypatch.setattr(means, "OF_LIKELIHOOD", 10)
    monkeypatch.setattr(means, "SAMPLES", 1)
    progress = Recorded()
    measured = evaluate(generative.model, generative.recipe, "likelihood", progress=progress)
    assert (progress.begun, progress.counts) == ([("likelihood", 10, 0)], [10])
    text = measured.sentence()
    assert f"images {measured.value:.3f} nats a pixel (mean of 10, 95 % interval" in text
    assert text.endswith("on mnist test; the paper has no number")


@pytest.mark.parametrize(
    ("protocol", "needed"), [("likelihood", "'attention'"), ("active_inference", "'predictive_coding'")]
)
def test_a_model_without_such_a_number_is_refused(protocol, needed):
    recipe = parse_recipe("x", {"model": {"name": "dynamic", "channels": 4}, "data": {"name": "mnist"}})
    with pytest.raises(ConfigError, match=f"such as {needed}. Received: 'dynamic'"):
        evaluate(None, recipe, protocol)
