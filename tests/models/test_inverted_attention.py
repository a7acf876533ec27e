"""Inverted dot-product attention: the network that its authors count, and what its layers do at the same time."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles.inverted_attention_routing import concurrent_routing
from support import dtype_policy, fill

from capszoo import visualize
from capszoo.layers import ConcurrentCapsules, ConvCapsules
from capszoo.models import InvertedAttentionCapsNet
from capszoo.models.architecture import Classifies, RoutesIteratively
from capszoo.models.network import trainable_parameters
from capszoo.routing import DynamicRouting, InvertedAttentionRouting

CLOSE = {"rtol": 1e-4, "atol": 2e-5}
SMALL = {"channels": (4, 4), "blocks": (1, 1), "primary_types": 2, "pose_side": 3, "conv_types": (2, 2)}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def made(num_iterations=3, types=(2, 3), windows=((2, 2), (2, 1)), shape=(6, 6, 3, 3, 3)):
    """A layer over poses of 3 x 3, whose weights are no initial ones, and children of two images."""
    layer = ConcurrentCapsules(types, windows, 4, InvertedAttentionRouting(num_iterations, name="routing"))
    children = numbers(2, *shape)
    layer.build(children.shape)
    # Larger than they begin, so that the epsilon under variances, which the oracle does without, is small.
    return fill(layer, scale=1.0), 10.0 * children


def levels_of(layer, grid):
    """The layers of `layer` as the oracle takes them; capsules of `grid` positions are below the class capsules."""
    levels = []
    for level in layer.levels:
        kernel = level.kernel.numpy()
        seen = (level.window[0],) * 2 if level.window else grid
        matrices = kernel.reshape(*seen, -1, *kernel.shape[1:])
        scale, offset = level.routing.scale.numpy(), level.routing.offset.numpy()
        levels.append({"window": level.window, "matrices": matrices, "scale": scale, "offset": offset})
    return levels


def test_it_has_the_published_parameters():
    assert trainable_parameters(InvertedAttentionCapsNet().build((32, 32, 3), 10)) == 1_828_817


def test_fresh_matrices_have_the_deviation_of_the_authors_code():
    layer = ConcurrentCapsules((20, 30), ((3, 1), (2, 1)), 10, InvertedAttentionRouting())
    layer.build((None, 6, 6, 4, 4, 4))
    # types of parents / (side * children of a parent)
    expected = [(20, 4 * 9 * 4), (30, 4 * 4 * 20), (10, 4 * 3 * 3 * 30)]
    for level, (parents, below) in zip(layer.levels, expected, strict=True):
        assert np.std(level.kernel) == pytest.approx(np.sqrt(parents / below), rel=0.05)


def test_it_classifies_in_iterations():
    assert InvertedAttentionCapsNet().has(Classifies)
    assert InvertedAttentionCapsNet().has(RoutesIteratively)


@pytest.mark.parametrize("num_iterations", [1, 2, 4])
def test_all_layers_are_routed_at_the_same_time_as_in_the_oracle(num_iterations):
    layer, children = made()
    poses, history = layer(children, num_iterations=num_iterations, return_history=True)
    assert history.shape == (num_iterations, 2, 12, 4)
    for image, capsules in enumerate(children):
        expected, coefficients = concurrent_routing(capsules, levels_of(layer, (2, 2)), num_iterations)
        np.testing.assert_allclose(poses[image], expected[-1], **CLOSE)
        np.testing.assert_allclose(history[:, image], coefficients, **CLOSE)


def test_without_convolutional_layers_it_is_its_routing():
    layer, children = made(types=(), windows=())
    votes = np.array(layer.votes_of(children))
    # Listed column by column, but routed row by row, as the weights of the normalisation are.
    votes = np.swapaxes(votes.reshape(*votes.shape[:3], 3, 3), 3, 4).reshape(votes.shape)
    expected, coefficients = layer.routing(votes, return_history=True)[::2]
    poses, history = layer(children, return_history=True)
    np.testing.assert_allclose(poses, np.reshape(expected, poses.shape), **CLOSE)
    np.testing.assert_allclose(history, coefficients, **CLOSE)


def test_a_layer_listens_to_what_the_layer_below_was_before():
    layer, children = made(num_iterations=2)
    expected = layer(children)
    # What the layers below become in the last iteration reaches nobody.
    for level in layer.levels[:-1]:
        level.step = lambda children, poses: {"poses": poses * np.nan}
    layer._procedure = None
    np.testing.assert_array_equal(layer(children), expected)


def test_a_count_in_a_tensor_is_the_same_count():
    layer, children = made()
    for count in (1, 3):
        expected = layer(children, num_iterations=count)
        np.testing.assert_allclose(
            layer(children, num_iterations=tf.constant(count)), expected, rtol=1e-5, atol=1e-6
        )
    with pytest.raises(ValueError, match="return_history=True needs num_iterations as an int"):
        layer(children, num_iterations=tf.constant(2), return_history=True)


@pytest.mark.parametrize("iteration", [1, 2, 3])
def test_its_votes_are_those_that_the_iteration_reads(iteration):
    layer, children = made(3)
    votes = layer.votes_at(children, iteration)
    _, history = layer(children, return_history=True)
    total = np.sum(history[iteration - 1][..., None] * votes, axis=1)
    centred = total - total.mean(axis=-1, keepdims=True)
    normalised = centred / total.std(axis=-1, keepdims=True)
    # [2, O, column * row] -> [2, O, row, column]
    rows = np.swapaxes(np.reshape(normalised, (2, -1, 3, 3)), 2, 3)
    scale, offset = (np.reshape(weight, (3, 3)) for weight in (layer.routing.scale, layer.routing.offset))
    np.testing.assert_allclose(layer(children, num_iterations=iteration), rows * scale + offset, **CLOSE)


def test_its_votes_are_at_first_those_of_the_last_iteration():
    layer, children = made(3)
    np.testing.assert_array_equal(layer.votes_of(children), layer.votes_at(children, 3))


def test_distances_of_votes_are_those_of_each_iteration():
    model = InvertedAttentionCapsNet(**SMALL, num_iterations=3).build((16, 16, 1), 3)
    images, layer = numbers(2, 16, 16, 1), model.get_layer("class_capsules")
    distances, coefficients = visualize.vote_distances(model, images)
    children = keras.Model(model.input, layer.input)(images)
    for t in range(3):
        votes, shares = np.array(layer.votes_at(children, t + 1)), coefficients[t][..., None]
        means = np.sum(shares * votes, axis=1, keepdims=True) / np.sum(shares, axis=1, keepdims=True)
        np.testing.assert_allclose(distances[t], np.linalg.norm(votes - means, axis=-1), rtol=1e-4, atol=1e-5)


def test_it_is_float32_whatever_the_policy():
    with dtype_policy("float64"):
        layer, children = made()
        assert keras.backend.standardize_dtype(layer(children).dtype) == "float32"
        assert {weight.dtype for weight in layer.weights} == {"float32"}


def test_activations_of_children_make_no_difference():
    routing = InvertedAttentionRouting()
    votes = numbers(2, 6, 4, 5)
    routing.build(votes.shape)
    silent, _ = routing(votes, np.zeros((2, 6), "float32"))
    np.testing.assert_array_equal(silent, routing(votes)[0])


def test_it_routes_capsules_of_other_layers_one_layer_after_the_other():
    layer = ConvCapsules(3, 3, 2, InvertedAttentionRouting(name="routing"))
    capsules = numbers(2, 5, 6, 2, 4, 4), np.ones((2, 5, 6, 2), "float32")
    (poses, activations), history = layer(capsules, return_history=True)
    np.testing.assert_allclose(layer(capsules)[0], poses, **CLOSE)
    np.testing.assert_array_equal(activations, np.ones((2, 2, 2, 3)))
    np.testing.assert_allclose(np.sum(history, axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"channels": (64, 0)}, "channels must be at least 1"),
        ({"conv_types": (32, 0)}, "conv_types must be at least 1"),
        ({"pose_side": 1}, "pose_side must be at least 2"),
    ],
)
def test_illegal_hyperparameters_are_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        InvertedAttentionCapsNet(**wrong)


def test_illegal_layers_are_refused():
    with pytest.raises(ValueError, match="equally many"):
        ConcurrentCapsules((2,), (), 4, InvertedAttentionRouting())
    with pytest.raises(ValueError, match=r"must be an InvertedAttentionRouting\. Received: DynamicRouting"):
        ConcurrentCapsules((), (), 4, DynamicRouting())
    with pytest.raises(ValueError, match="square matrices"):
        ConcurrentCapsules((), (), 4, InvertedAttentionRouting()).build((None, 5, 5, 2, 3, 4))
    with pytest.raises(ValueError, match="at least 3x3"):
        made(windows=((3, 2), (3, 1)), shape=(5, 5, 2, 3, 3))
