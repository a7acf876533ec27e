"""Class capsules: one matrix per child and parent."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles.dynamic_routing import dynamic_routing
from support import fill

from capszoo.layers import DenseCapsules, LatentCapsules
from capszoo.routing import DynamicRouting, UniformRouting


def numbers(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def made(poses, routing=None):
    layer = DenseCapsules(4, 5, routing or DynamicRouting(name="routing"))
    layer.build(poses.shape)
    return fill(layer)


def votes_by_loops(poses, kernel):
    """u_ij = u_i W_ij, children in the order of rows, columns and types."""
    poses = poses.reshape(len(poses), -1, poses.shape[-1]).astype("float64")
    votes = np.zeros((*poses.shape[:2], *kernel.shape[2:]))
    for b, i, o in np.ndindex(*votes.shape[:3]):
        votes[b, i, o] = poses[b, i] @ kernel[i, :, o].astype("float64")
    return votes


@pytest.mark.parametrize("shape", [(3, 7, 6), (2, 2, 3, 4, 6)])
def test_votes_are_each_childs_pose_times_its_matrix_for_each_parent(shape):
    poses = numbers(*shape)
    layer = made(poses)
    expected = votes_by_loops(poses, layer.kernel.numpy())
    np.testing.assert_allclose(layer.votes(tf.constant(poses)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 3])
def test_poses_are_the_routed_votes(count):
    poses = numbers(2, 2, 3, 4, 6)
    layer = made(poses)
    votes = votes_by_loops(poses, layer.kernel.numpy())
    expected = dynamic_routing(votes, count, layer.routing.bias.numpy())
    routed, history = layer(poses, num_iterations=count, return_history=True)
    np.testing.assert_allclose(routed, expected["poses"], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(history, expected["coefficients"], rtol=1e-4, atol=2e-5)


def test_the_count_at_the_call_overrides_the_routings_own_and_may_be_a_tensor():
    poses = numbers(2, 7, 6)
    layer = made(poses)
    for count in (1, 2, 4):
        expected = layer(poses, num_iterations=count)
        np.testing.assert_allclose(
            layer(poses, num_iterations=tf.constant(count)), expected, rtol=1e-4, atol=1e-6
        )
    assert np.max(np.abs(layer(poses) - layer(poses, num_iterations=1))) > 1e-3
    np.testing.assert_array_equal(layer(poses), layer(poses, num_iterations=3))


@pytest.mark.parametrize("routing", [DynamicRouting, UniformRouting])
def test_the_support_of_latent_capsules_is_of_the_last_of_any_count(routing):
    poses = numbers(2, 3, 2, 4, 6)
    layer = LatentCapsules(5, 4, routing())
    layer(poses)
    fill(layer)
    for count in (1, 3):
        (_, support), history = layer(poses, num_iterations=count, return_history=True)
        assert history.shape[0] == count
        for given in (count, tf.constant(count)):
            _, other = layer(poses, num_iterations=given)
            np.testing.assert_allclose(other, support, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_the_sum_of_all_votes_is_one_matrix_product(scale):
    poses = numbers(2, 7, 6)
    layer = made(poses, UniformRouting(scale))
    expected, _ = layer(poses, return_history=True)
    np.testing.assert_allclose(layer(poses), expected, rtol=1e-4, atol=1e-5)
    graph = tf.function(layer, autograph=False).get_concrete_function(tf.constant(poses)).graph
    shapes = [tuple(tensor.shape) for operation in graph.get_operations() for tensor in operation.outputs]
    assert layer.votes(poses).shape not in shapes


@pytest.mark.parametrize("routing", [DynamicRouting(), UniformRouting()])
def test_zero_iterations_are_refused_with_votes_and_without(routing):
    with pytest.raises(ValueError, match="at least 1"):
        made(numbers(2, 7, 6), routing)(numbers(2, 7, 6), num_iterations=0)


def test_a_pose_that_is_no_number_is_not_hidden():
    poses = numbers(3, 7, 6)
    poses[1, 4] = np.nan
    parents = np.asarray(made(poses)(poses))
    assert np.isnan(parents[1]).all()
    assert np.isfinite(parents[[0, 2]]).all()


def test_initial_matrices_do_not_shrink_with_the_number_of_children():
    layer = DenseCapsules(10, 16, UniformRouting(name="routing"))
    layer.build((None, 300, 8))
    kernel = layer.kernel.numpy()
    assert np.abs(kernel).max() <= 0.2
    np.testing.assert_allclose(kernel.std(), 0.088, rtol=0.02)


def test_children_of_unknown_number_are_refused():
    with pytest.raises(ValueError, match=r"must have a static shape\. Received: \(None, None, 6\)"):
        made(keras.Input((None, 6)))


@pytest.mark.parametrize("routing", [DynamicRouting(2, leaky=True, use_bias=False), UniformRouting("mean")])
def test_its_configuration_keeps_the_routing_and_its_options(routing):
    layer = made(numbers(2, 7, 6), routing)
    again = DenseCapsules.from_config(layer.get_config())
    assert type(again.routing) is type(routing)
    assert again.routing.get_config() == routing.get_config()
