"""Optimised latent variables are measured as those that the network infers."""

import keras
import numpy as np
import pytest
from support import Recorded
from tiny import PROBABILISTIC

from capszoo.config import ConfigError
from capszoo.data import RotatedMnist
from capszoo.protocols import LatentOptimisationProtocol, Subject, evaluate, get_protocol
from capszoo.protocols.linear_probe import turned_digits
from capszoo.zoo.recipes import parse_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")


def recipe_of(**model):
    return parse_recipe("tiny", {"model": model, "data": {"name": "mnist", "validation": 50}})


@pytest.fixture(scope="module")
def subject(data):
    keras.utils.set_random_seed(0)
    recipe = recipe_of(name="probabilistic", **PROBABILISTIC)
    return Subject("tiny", recipe, recipe.build(), 7)


@pytest.fixture(scope="module")
def measured(subject):
    """The report on all test images, the outputs, and the progress."""
    progress = Recorded()
    protocol = LatentOptimisationProtocol(images=100, max_angle=90.0, steps=40, learning_rate=0.05)
    report = protocol.measure([subject], progress=progress)
    return report, report.outputs, progress


@pytest.mark.slow
def test_the_network_is_measured_by_its_own_outputs(subject, measured):
    report, outputs, _ = measured
    for condition in ("upright", "turned"):
        images, network, _ = outputs[condition]
        for name, array in subject.model.predict_on_batch(images).items():
            np.testing.assert_allclose(network[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
        error = ((network["reconstruction"] - images) ** 2).sum() / (images**2).sum()
        assert report.network[condition].error == pytest.approx(error)
    for protocol, condition in (("probe", "upright"), ("probe_rotated_90", "turned")):
        network = report.network[condition]
        assert 1 - evaluate(subject.model, subject.recipe, protocol).value == pytest.approx(network.poses)
        presences = evaluate(subject.model, subject.recipe, f"presence_{protocol}")
        assert 1 - presences.value == pytest.approx(network.presences)


@pytest.mark.slow
def test_latent_optimisation_has_the_better_bound_and_is_measured_by_the_same_classifiers(subject, measured):
    report, outputs, _ = measured
    fitting = subject.recipe.data.open("train")
    labels = subject.recipe.data.open("test").labels
    for condition, found in report.optimised.items():
        assert found.loss < report.network[condition].loss - 1
        logits = outputs[condition][2]["logits"]
        right = get_protocol("presence_probe").fitted(subject.model, fitting).predict(logits) == labels
        assert found.presences == pytest.approx(right.mean())


@pytest.mark.slow
def test_the_turned_digits_are_those_of_the_probes(subject, measured):
    """Whatever was trained on."""
    images = RotatedMnist(max_angle=90).open("test").batch(np.arange(100), None)["images"]
    assert measured[0].turned == turned_digits(subject.recipe, 90.0).open("test").tested.fingerprint()
    np.testing.assert_array_equal(measured[1]["turned"][0], images)


@pytest.mark.slow
def test_progress_counts_the_steps_of_both_conditions(measured):
    progress = measured[2]
    assert (progress.begun, progress.counts) == ([("latent optimisation", 80, 0)], [1] * 80)


@pytest.mark.parametrize("option", [{"images": 0}, {"steps": 0}])
def test_nothing_to_infer_and_no_steps_are_refused_at_once(subject, option):
    with pytest.raises(ConfigError, match=r"must be at least 1\. Received: 0"):
        LatentOptimisationProtocol(**option)


def test_other_data_are_refused():
    recipe = parse_recipe("tiny", {"model": {"name": "probabilistic"}, "data": {"name": "rotated_mnist"}})
    with pytest.raises(ConfigError, match=r"measured on MNIST\. Received: 'rotated_mnist'"):
        LatentOptimisationProtocol(images=4).measure([Subject("tiny", recipe, None)])


@pytest.mark.parametrize(
    "model", [{"name": "vae"}, {"name": "probabilistic", **PROBABILISTIC, "posterior": "gaussian"}]
)
def test_other_models_are_refused(model):
    with pytest.raises(ConfigError, match="optimises latent variables, such as probabilistic"):
        LatentOptimisationProtocol(images=4).measure([Subject("tiny", recipe_of(**model), None)])
