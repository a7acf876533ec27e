"""Heinsen's routing: the network that its author counts, and votes that are never made."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles.heinsen_routing import heinsen_routing, heinsen_votes
from support import fill

from capszoo.layers import CoordinateChannels, HeinsenCapsules
from capszoo.models import HeinsenCapsNet
from capszoo.models.architecture import Classifies, RoutesIteratively
from capszoo.models.network import trainable_parameters
from capszoo.routing import HeinsenRouting

CLOSE = {"rtol": 1e-4, "atol": 5e-5}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def logistic(logits):
    return 1 / (1 + np.exp(-logits))


def made(shared_betas, num_iterations=3, rows=3, **options):
    """A layer of four parents whose weights are no initial ones, and children of two images: poses and logits."""
    routing = HeinsenRouting(num_iterations, shared_betas=shared_betas, name="routing", **options)
    layer = HeinsenCapsules(4, routing)
    poses, logits = numbers(2, 3, 2, 5, rows, 4), numbers(2, 3, 2, 5, seed=1)
    layer.build((poses.shape, logits.shape))
    return fill(layer, scale=0.5), poses, logits


def expected_of(layer, poses, logits, num_iterations=3):
    """What the oracle makes of them."""
    axis = 0 if layer.routing.shared_betas else ()
    kernel, bias = (np.expand_dims(weight.numpy(), axis) for weight in (layer.kernel, layer.bias))
    children = poses.reshape(2, -1, *poses.shape[-2:])
    betas = layer.routing.beta_use.numpy(), layer.routing.beta_ignore.numpy()
    # [O, I] or [O] -> [I, O] or [1, O]
    betas = [np.reshape(beta, (4, -1)).T for beta in betas]
    if layer.routing.shared_betas:
        # Of which weights are as many times as there are children.
        betas = [beta / children.shape[1] for beta in betas]
    votes = heinsen_votes(children, kernel, bias)
    return votes, heinsen_routing(votes, logits.reshape(2, -1), *betas, num_iterations)


def test_it_has_the_published_parameters():
    assert trainable_parameters(HeinsenCapsNet().build((96, 96, 2), 5)) == 271_688


@pytest.mark.parametrize("shared_betas", [True, False])
def test_fresh_benefits_and_costs_differ(shared_betas):
    routing = HeinsenRouting(shared_betas=shared_betas)
    routing.build((None, 64, 5, 16))
    difference = np.asarray(routing.beta_use) - np.asarray(routing.beta_ignore)
    assert np.std(difference) * (1 if shared_betas else 64) > 0.5


def test_it_classifies_in_iterations():
    assert HeinsenCapsNet().has(Classifies)
    assert HeinsenCapsNet().has(RoutesIteratively)


@pytest.mark.parametrize("num_iterations", [1, 2, 4])
@pytest.mark.parametrize("shared_betas", [True, False])
def test_capsules_are_those_of_the_oracle(shared_betas, num_iterations):
    layer, poses, logits = made(shared_betas, num_iterations)
    (parents, activations), history = layer((poses, logistic(logits)), return_history=True)
    _, expected = expected_of(layer, poses, logits, num_iterations)
    np.testing.assert_allclose(parents, expected["poses"].reshape(2, 4, 3, 4), **CLOSE)
    np.testing.assert_allclose(activations, logistic(expected["logits"]), **CLOSE)
    np.testing.assert_allclose(history, expected["coefficients"], **CLOSE)


@pytest.mark.parametrize("shared_betas", [True, False])
def test_its_votes_are_those_of_the_oracle_by_columns(shared_betas):
    layer, poses, logits = made(shared_betas)
    votes, _ = expected_of(layer, poses, logits)
    by_columns = np.swapaxes(votes.reshape(2, 30, 4, 3, 4), -1, -2).reshape(votes.shape)
    np.testing.assert_allclose(layer.votes_of((poses, logits)), by_columns, **CLOSE)


def test_children_far_from_zero_and_close_to_each_other_keep_their_variance():
    layer, poses, logits = made(True, rows=4)
    poses = 30.0 + 0.01 * poses[..., :1, :] * np.ones((4, 1), "float32")
    (parents, _), history = layer((poses, logistic(logits)), return_history=True)
    _, expected = expected_of(layer, poses.astype("float64"), logits)
    np.testing.assert_allclose(parents, expected["poses"].reshape(2, 4, 4, 4), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(history, expected["coefficients"], atol=2e-3)


@pytest.mark.parametrize("activation", [0.0, 1e-6])
def test_children_that_are_silent_leave_what_the_oracle_leaves(activation):
    layer, poses, logits = made(True)
    logits = np.full_like(logits, -np.inf if activation == 0 else np.log(activation))
    (parents, activations) = layer((poses, logistic(logits)))
    with np.errstate(all="ignore"):
        _, expected = expected_of(layer, poses, logits)
    np.testing.assert_allclose(parents, expected["poses"].reshape(2, 4, 3, 4), **CLOSE)
    np.testing.assert_allclose(activations, logistic(expected["logits"]), **CLOSE)


def test_what_is_used_speaks_for_a_parent_and_what_is_ignored_against_it():
    layer, poses, logits = made(True, logits=True)
    layer.routing.beta_use.assign([1.0, 0.0, 0.0, 0.0])
    layer.routing.beta_ignore.assign([0.0, 1.0, 0.0, 0.0])
    logits_of_parents = layer((poses, logistic(logits)))[1].numpy()
    assert np.all(logits_of_parents[:, 0] > 0)
    assert np.all(logits_of_parents[:, 1] < 0)
    np.testing.assert_array_equal(logits_of_parents[:, 2:], 0)


@pytest.mark.parametrize("shared_betas", [True, False])
def test_a_count_in_a_tensor_is_the_same_count(shared_betas):
    layer, poses, logits = made(shared_betas)
    children = poses, logistic(logits)
    for count in (1, 3):
        expected = layer(children, num_iterations=count)
        found = layer(children, num_iterations=tf.constant(count))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="return_history=True needs num_iterations as an int"):
        layer(children, num_iterations=tf.constant(2), return_history=True)


def test_scores_are_the_softmax_of_what_the_oracle_gives_the_classes():
    model = fill(HeinsenCapsNet(channels=(4,), strides=(2,), types=3).build((11, 11, 1), 4), scale=0.5)
    images = numbers(2, 11, 11, 1)
    below = keras.Model(model.input, model.get_layer("capsules").output)
    poses, activations = (np.asarray(part, "float64") for part in below(images))
    logits = np.log(activations) - np.log1p(-activations)
    _, expected = expected_of(model.get_layer("class_capsules"), poses, logits)
    exponentials = np.exp(expected["logits"] - expected["logits"].max(axis=1, keepdims=True))
    softmax = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model(images)["scores"], softmax, rtol=1e-3, atol=1e-5)


def test_coordinates_run_from_minus_one_to_one():
    images = CoordinateChannels()(np.zeros((2, 3, 5, 1), "float32"))
    np.testing.assert_array_equal(images[1, :, 2, 1:], [[-1, 0], [0, 0], [1, 0]])
    np.testing.assert_array_equal(images[0, 1, :, 2], [-1, -0.5, 0, 0.5, 1])


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"channels": (64, 64)}, "equally many"),
        ({"channels": (0,), "strides": (1,)}, "channels must be at least 1"),
        ({"types": 0}, "types must be at least 1"),
    ],
)
def test_illegal_hyperparameters_are_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        HeinsenCapsNet(**wrong)


def test_illegal_children_are_refused():
    with pytest.raises(ValueError, match="static shape"):
        HeinsenCapsules(3, HeinsenRouting()).build(((None, None, 4, 4), (None, None)))
    with pytest.raises(ValueError, match="static size"):
        CoordinateChannels().build((None, None, 5, 1))
