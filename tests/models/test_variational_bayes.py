"""Variational-Bayes routing: the networks that its authors count, and what normalisation makes of its capsules."""

import dataclasses

import keras
import numpy as np
import pytest

from capszoo.layers import BatchNormalisedClassCapsules, BatchNormalisedConvCapsules
from capszoo.models import VariationalBayesCapsNet
from capszoo.models.architecture import Classifies, RoutesIteratively
from capszoo.models.network import trainable_parameters
from capszoo.routing import EMRouting, VariationalBayesRouting
from capszoo.training.health import check_health

SMALL = {"channels": 8, "primary_types": 3, "conv1_types": 4, "conv2_types": 4, "num_iterations": 2}


@pytest.mark.parametrize(
    ("types", "parameters"),
    [({}, 68_714), ({"primary_types": 16, "conv1_types": 32, "conv2_types": 16}, 169_642)],
)
def test_it_has_the_published_parameters(types, parameters):
    assert trainable_parameters(VariationalBayesCapsNet(**types).build((32, 32, 2), 5)) == parameters


def test_it_classifies_in_iterations():
    assert VariationalBayesCapsNet().has(Classifies)
    assert VariationalBayesCapsNet().has(RoutesIteratively)


def test_capsules_of_a_fresh_network_are_active_by_halves_and_differ():
    keras.utils.set_random_seed(0)
    model = VariationalBayesCapsNet(**SMALL).build((20, 20, 1), 5)
    stages = keras.Model(
        model.input, [model.get_layer(name).output for name in model.architecture.stages[1:]]
    )
    images = np.random.default_rng(0).normal(size=(32, 20, 20, 1))
    for poses, activations in stages(images, training=True):
        np.testing.assert_allclose(np.mean(activations), 0.5, atol=0.05)
        assert 0.1 < np.std(activations) < 0.3
        # One variance for each type of capsule, which epsilon makes smaller where it is small.
        assert 0.1 < np.std(poses) < 1.05


def test_normalisation_of_poses_keeps_the_shape_of_a_pose():
    layer = BatchNormalisedConvCapsules(2, 3, 1, VariationalBayesRouting(logits=True))
    capsules = np.random.default_rng(0).normal(size=(4, 3, 3, 2, 4, 4)), np.full((4, 3, 3, 2), 0.5)
    plain, _ = layer(capsules)
    normalised, _ = layer(capsules, training=True)
    for kind in range(2):
        # All 16 entries of a type are shifted and scaled alike.
        before, after = np.ravel(plain[:, :, :, kind]), np.ravel(normalised[:, :, :, kind])
        slope, shift = np.polyfit(before, after, 1)
        np.testing.assert_allclose(after, slope * before + shift, atol=1e-4)
        np.testing.assert_allclose(np.mean(after), 0, atol=1e-5)


def test_initial_matrices_have_glorots_limits():
    layer = BatchNormalisedConvCapsules(5, 3, 1, VariationalBayesRouting(logits=True))
    layer.build(((None, 6, 6, 3, 4, 4), (None, 6, 6, 3)))
    # Fans of 3 and 5 types times 9 taps times 16 entries.
    limit = np.sqrt(6 / (3 * 9 * 16 + 5 * 9 * 16))
    assert 0.98 * limit < np.max(np.abs(layer.kernel)) <= limit
    layer = BatchNormalisedClassCapsules(5, VariationalBayesRouting(logits=True))
    layer.build(((None, 6, 6, 30, 4, 4), (None, 6, 6, 30)))
    limit = np.sqrt(6 / (35 * 16))
    assert 0.98 * limit < np.max(np.abs(layer.kernel)) <= limit


def test_coordinates_are_those_of_the_authors_code():
    layer = VariationalBayesCapsNet(**SMALL).build((32, 28, 1), 5).get_layer("class_capsules")
    rows, columns = layer.coordinates
    np.testing.assert_allclose(rows, [0.025, 0.05, 0.075, 0.1])
    np.testing.assert_allclose(columns, [1 / 30, 2 / 30, 0.1])


def test_a_step_of_training_lowers_the_cross_entropy_of_scores_as_logits():
    keras.utils.set_random_seed(0)
    architecture = VariationalBayesCapsNet(**SMALL)
    model = architecture.build((20, 20, 1), 5)
    batch = {
        "images": np.random.default_rng(0).random((10, 20, 20, 1), dtype="float32"),
        "labels": np.arange(10) % 5,
    }
    objective = architecture.objective(model)
    objective.compile(keras.optimizers.Adam(1e-2), batch)
    inputs, targets = objective.arrange(batch)
    scores = np.asarray(model(batch["images"], training=True)["scores"], "float64")
    by_hand = np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(10), batch["labels"]])
    losses = [objective.model.train_on_batch(inputs, targets, return_dict=True)["loss"]]
    np.testing.assert_allclose(losses[0], by_hand, rtol=1e-5)
    objective.model.reset_metrics()
    losses.append(objective.model.train_on_batch(inputs, targets, return_dict=True)["loss"])
    assert losses[1] < losses[0]


def test_a_routing_that_returns_no_logits_is_refused():
    for routing in (VariationalBayesRouting(), EMRouting()):
        with pytest.raises(ValueError, match="returns logits"):
            BatchNormalisedClassCapsules(5, routing)


@pytest.mark.parametrize("name", ["channels", "primary_types", "conv2_types", "num_iterations"])
def test_illegal_hyperparameters_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        VariationalBayesCapsNet(**{name: 0})


def test_the_check_of_a_fresh_network_sees_normalised_capsules_and_leaves_it_as_it_is(recwarn):
    keras.utils.set_random_seed(0)
    architecture = VariationalBayesCapsNet(**SMALL)
    model = architecture.build((20, 20, 1), 5)
    before = model.get_weights()
    report = check_health(
        dataclasses.make_dataclass("Recipe", ["model"])(architecture),
        model,
        np.random.default_rng(0).random((8, 20, 20, 1), dtype="float32"),
    )
    np.testing.assert_allclose([report[stage] for stage in architecture.stages], 0.5, atol=0.1)
    assert not [warning for warning in recwarn if "initialisation" in str(warning.message)]
    for weight, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, other)
