"""Dynamic routing and its limits, beyond what every routing obeys (`conformance/test_routing.py`)."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles import dynamic_routing as oracle
from support import arrays, traced

from capszoo.layers import DenseCapsules
from capszoo.routing import DynamicRouting, Routing, UniformRouting, squash

CLOSE = {"rtol": 1e-4, "atol": 2e-5}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def routed(layer, votes, bias=None, **options):
    """Poses, activations and history of a routing with the given bias."""
    layer.build(votes.shape)
    if bias is not None:
        layer.set_weights([bias])
    return arrays(layer(votes, return_history=True, **options))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("leaky", [False, True], ids=["plain", "leaky"])
@pytest.mark.parametrize("use_bias", [False, True], ids=["without bias", "bias"])
@pytest.mark.parametrize(("images", "children", "parents", "depth"), [(1, 1, 1, 1), (2, 9, 10, 16)])
def test_dynamic_routing_agrees_with_the_oracle(count, leaky, use_bias, images, children, parents, depth):
    votes = numbers(images, children, parents, depth)
    bias = numbers(parents, depth, seed=1) if use_bias else None
    layer = DynamicRouting(count, leaky=leaky, use_bias=use_bias)
    poses, activations, history = routed(layer, votes, bias)
    expected = oracle.dynamic_routing(votes, count, bias, leaky)
    np.testing.assert_allclose(poses, expected["poses"], **CLOSE)
    np.testing.assert_allclose(history, expected["coefficients"], **CLOSE)
    # The one place where the epsilon inside the root can be seen: sqrt(v^2 + 1e-7).
    lengths = np.sqrt(np.sum(expected["poses"] ** 2, axis=-1) + 1e-7)
    np.testing.assert_allclose(activations, lengths, **CLOSE)


def test_votes_on_a_grid_are_routed_position_by_position():
    votes = numbers(2, 3, 2, 5, 4, 6)
    poses, activations, history = routed(DynamicRouting(use_bias=False), votes)
    assert poses.shape == (2, 3, 2, 4, 6)
    assert activations.shape == (2, 3, 2, 4)
    assert history.shape == (3, 2, 3, 2, 5, 4)
    flat, *_ = routed(DynamicRouting(use_bias=False), votes.reshape(12, 5, 4, 6))
    np.testing.assert_allclose(poses.reshape(12, 4, 6), flat, **CLOSE)


@pytest.mark.parametrize("scale", ["sum", "mean"])
@pytest.mark.parametrize("use_bias", [False, True])
def test_uniform_routing_agrees_with_the_oracle(scale, use_bias):
    votes, bias = numbers(2, 9, 10, 16), numbers(10, 16, seed=1) if use_bias else None
    poses, _, history = routed(UniformRouting(scale, use_bias=use_bias), votes, bias)
    expected = oracle.uniform_routing(votes, bias, scale)
    np.testing.assert_allclose(poses, expected["poses"], **CLOSE)
    np.testing.assert_allclose(history, expected["coefficients"], **CLOSE)


def test_one_iteration_is_uniform_routing_of_the_mean():
    votes, bias = numbers(2, 6, 4, 5), numbers(4, 5, seed=1)
    once = routed(DynamicRouting(1), votes, bias)
    for array, other in zip(once, routed(UniformRouting("mean"), votes, bias), strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-6)
    np.testing.assert_allclose(once[2], 1 / 4)


def test_no_routing_squashes_the_plain_sum_and_divides_by_nothing():
    votes = numbers(2, 6, 4, 5)
    poses, _, history = routed(UniformRouting("sum", use_bias=False), votes)
    np.testing.assert_allclose(poses, squash(votes.sum(axis=1)), **CLOSE)
    np.testing.assert_array_equal(history, np.ones((1, 2, 6, 4)))


def test_a_leaky_child_starts_with_one_share_more_than_it_has_parents():
    _, _, history = routed(DynamicRouting(2, leaky=True), numbers(2, 6, 4, 5))
    np.testing.assert_allclose(history[0], 1 / 5)
    assert np.all(history.sum(axis=-1) < 1)


def test_a_leaky_child_nobody_agrees_with_keeps_more_of_itself():
    votes = numbers(1, 6, 3, 5)
    votes[:, :5] = [1.0, 2.0, -1.0, 0.5, 0.0]
    votes[:, 5] = -votes[:, 0]
    _, _, history = routed(DynamicRouting(3, leaky=True), votes)
    given = history.sum(axis=-1)
    assert given[2, 0, 5] < given[0, 0, 5] < given[2, 0, 0]


def test_iterations_move_children_towards_the_parent_on_which_they_agree():
    votes = numbers(1, 8, 2, 4)
    votes[:, :, 0] = [1.0, -1.0, 0.5, 0.0]
    _, _, history = routed(DynamicRouting(3), votes)
    shares = history[:, 0, :, 0].mean(axis=-1)
    assert shares[0] < shares[1] < shares[2]


def test_rotating_all_poses_rotates_the_parents():
    votes = numbers(2, 6, 4, 5)
    rotation = np.linalg.qr(numbers(5, 5, seed=1))[0]
    poses, *_ = routed(DynamicRouting(use_bias=False), votes)
    moved, *_ = routed(DynamicRouting(use_bias=False), votes @ rotation)
    np.testing.assert_allclose(moved, poses @ rotation, **CLOSE)


def test_the_bias_begins_at_a_tenth_inside_the_squash():
    poses, *_ = routed(DynamicRouting(), np.zeros((1, 3, 2, 4), "float32"))
    np.testing.assert_allclose(poses, np.broadcast_to(oracle.squash(np.full(4, 0.1)), (1, 2, 4)), rtol=1e-4)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("leaky", [False, True])
def test_every_iteration_but_the_first_is_one_softmax_in_the_graph(count, leaky):
    # Equal logits need no softmax, so the first is a constant.
    layer = DynamicRouting(count, leaky=leaky)
    top, inside = traced(layer, numbers(2, 6, 4, 5))
    assert top["Softmax"] == 0
    assert inside["Softmax"] == count - 1


def test_a_tensor_count_is_one_softmax_inside_the_loop():
    layer = DynamicRouting()
    votes = numbers(2, 6, 4, 5)
    _, inside = traced(lambda count: layer(votes, num_iterations=count), tf.TensorSpec([], tf.int32))
    assert inside["Softmax"] == 1


def test_gradients_flow_through_every_iteration():
    # With the agreement held constant the gradient would be that of the coefficients' last values.
    layer, votes = DynamicRouting(3, use_bias=False), tf.constant(numbers(1, 4, 3, 5))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(votes)
        poses, _, history = layer(votes, return_history=True)
        fixed = squash(tf.einsum("bio,biod->bod", tf.stop_gradient(history[-1]), votes))
    whole, partial = tape.gradient(poses, votes), tape.gradient(fixed, votes)
    assert np.max(np.abs(whole - partial)) > 0.01


def test_a_routing_keeps_no_trace_of_the_images_it_has_seen():
    layer, votes = DynamicRouting(), numbers(2, 6, 4, 5)
    first = arrays(layer(votes))
    layer(numbers(2, 6, 4, 5, seed=1))
    for array, other in zip(arrays(layer(votes)), first, strict=True):
        np.testing.assert_array_equal(array, other)


def test_two_routings_of_one_class_do_not_share_their_traces():
    votes = numbers(2, 6, 4, 5)
    plain, leaky = DynamicRouting(2), DynamicRouting(2, leaky=True)
    expected = oracle.dynamic_routing(votes, 2, np.full((4, 5), 0.1), leaky=True)
    plain(votes)
    np.testing.assert_allclose(leaky(votes)[0], expected["poses"], **CLOSE)


def test_a_trace_sees_weights_that_were_changed_after_it():
    layer, votes, bias = DynamicRouting(), numbers(2, 6, 4, 5), numbers(4, 5, seed=1)
    layer(votes)
    layer.set_weights([bias])
    np.testing.assert_allclose(layer(votes)[0], oracle.dynamic_routing(votes, 3, bias)["poses"], **CLOSE)


@pytest.mark.parametrize("count", [2, 3])
def test_more_iterations_change_nothing_where_there_is_no_routing(count):
    layer, votes = UniformRouting("mean"), numbers(2, 6, 4, 5)
    once = layer(votes)[0]
    np.testing.assert_allclose(layer(votes, num_iterations=count)[0], once)
    np.testing.assert_allclose(layer(votes, num_iterations=tf.constant(count))[0], once)


@pytest.mark.parametrize("count", [0, -1, 2.5, "3", None])
def test_an_impossible_number_of_iterations_is_refused(count):
    with pytest.raises(ValueError, match=r"num_iterations must be an int of at least 1\. Received"):
        DynamicRouting(count)


def test_a_count_that_is_a_tensor_is_checked_where_the_graph_runs():
    layer, votes = DynamicRouting(), tf.ones((1, 2, 3, 4))
    layer.build(votes.shape)

    @tf.function(input_signature=[tf.TensorSpec((), "int32")])
    def route(count):
        return layer(votes, num_iterations=count)

    assert np.all(np.isfinite(route(1)[0]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_iterations must be at least 1"):
        route(0)


@pytest.mark.parametrize("count", [2.5, "2", (1, 2), tf.constant([2, 2])], ids=str)
def test_what_is_no_number_of_iterations_is_refused(count):
    layer = DynamicRouting()
    with pytest.raises(ValueError, match=r"num_iterations must be"):
        layer(tf.ones((1, 2, 3, 4)), num_iterations=count)


def test_another_scale_is_refused():
    with pytest.raises(ValueError, match=r"scale must be 'sum' or 'mean'\. Received: 'max'"):
        UniformRouting("max")


def test_votes_without_an_axis_of_children_are_refused():
    with pytest.raises(
        ValueError, match=r"votes must be \[B, \.\.\., I, O, D\]\. Received shape: \(2, 4, 5\)"
    ):
        DynamicRouting()(numbers(2, 4, 5))


@pytest.mark.parametrize("hook", ["start", "step", "finish"])
def test_a_routing_without_its_hooks_says_so(hook):
    arguments = {"start": 2, "step": 4, "finish": 3}[hook]
    with pytest.raises(NotImplementedError):
        getattr(Routing(), hook)(*[None] * arguments)


def test_a_saved_layer_can_still_be_run_with_any_count(tmp_path):
    images = keras.Input((6, 8))
    model = keras.Model(images, DenseCapsules(4, 5, DynamicRouting(name="routing"), name="capsules")(images))
    model(numbers(2, 6, 8))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").get_layer("capsules")
    for count in (1, 4):
        expected = model.get_layer("capsules")(numbers(2, 6, 8), num_iterations=count)
        np.testing.assert_array_equal(loaded(numbers(2, 6, 8), num_iterations=count), expected)
