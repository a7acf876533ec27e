"""Dynamic routing without votes, compiled or as one matrix product, says what routing of votes says."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles.dynamic_routing import dynamic_routing
from test_kernels import assert_close, calls_the_host, of_threads, traced

from capszoo import models
from capszoo.layers import DenseCapsules, LatentCapsules
from capszoo.routing import DynamicRouting, UniformRouting, cpu

# Children that do not divide into parts, parents that fill a block of lanes, or more than one and not all of them.
KINDS = {
    "eighteen parents": {"children": 37, "width": 8, "parents": 18, "entries": 16},
    "a full block": {"children": 16, "width": 3, "parents": 16, "entries": 5},
    "twenty parents, leaky": {"children": 35, "width": 4, "parents": 20, "entries": 7, "leaky": True},
    "few children, no bias": {"children": 5, "width": 6, "parents": 17, "entries": 4, "use_bias": False},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def layer_of(kind, count=3, dtype="float32", create=DynamicRouting, scale=0.4):
    """A layer with weights that do not depend on the dtype, and poses for it on a grid of one column."""
    options = dict(KINDS[kind])
    children, width, parents, entries = (
        options.pop(name) for name in ("children", "width", "parents", "entries")
    )
    routing = create(count, dtype=dtype, **options)
    layer = LatentCapsules(parents, entries, routing, dtype=dtype)
    rng = np.random.default_rng(0)
    # More than four, and no multiple of it.
    poses = rng.normal(size=(5, children, 1, 1, width)).astype("float32")
    with cpu.host_calls(False):
        layer(tf.constant(poses.astype(dtype)))
    for weight in layer.weights:
        weight.assign((scale * rng.normal(size=weight.shape)).astype("float32"))
    return layer, poses


def differentiated(layer, poses, host_calls):
    """Parents, support, and the gradients of a random sum of both by poses and weights."""
    poses = tf.constant(poses.astype(layer.dtype))
    rng = np.random.default_rng(2)
    with cpu.host_calls(host_calls), tf.GradientTape() as tape:
        tape.watch(poses)
        outputs = layer(poses)
        value = sum(tf.reduce_sum(rng.normal(size=part.shape).astype(layer.dtype) * part) for part in outputs)
    weights = [weight.value for weight in layer.trainable_weights]
    return [np.asarray(part, "float64") for part in (*outputs, *tape.gradient(value, [poses, *weights]))]


@pytest.mark.parametrize("count", [1, 2, 4])
@every_kind
def test_values_and_gradients_are_those_of_the_graph_in_float64(kind, count):
    layer, poses = layer_of(kind, count)
    exact = differentiated(layer_of(kind, count, "float64")[0], poses, False)
    names = ["poses", "support", "d poses", *(weight.path for weight in layer.trainable_weights)]
    for name, found, expected in zip(names, differentiated(layer, poses, True), exact, strict=True):
        assert_close(found, expected, 2e-5, name)


@every_kind
def test_it_agrees_with_the_oracle(kind):
    layer, poses = layer_of(kind)
    votes = np.einsum("bid,idoe->bioe", poses[:, :, 0, 0].astype("float64"), layer.kernel.numpy())
    bias = layer.routing.bias.numpy() if layer.routing.use_bias else None
    expected = dynamic_routing(votes, 3, bias, layer.routing.leaky)
    with cpu.host_calls(True):
        parents, support = layer(poses)
    np.testing.assert_allclose(parents, expected["poses"], rtol=1e-4, atol=1e-5)
    coefficients = expected["coefficients"][-1]
    np.testing.assert_allclose(support, coefficients.mean(axis=1), rtol=1e-4, atol=1e-5)


def test_large_votes_do_not_overflow():
    layer, poses = layer_of("eighteen parents", scale=20.0)
    exact = differentiated(layer_of("eighteen parents", dtype="float64", scale=20.0)[0], poses, False)
    for found, expected in zip(differentiated(layer, poses, True), exact, strict=True):
        assert_close(found, expected, 1e-3)


def test_no_bit_depends_on_the_number_of_threads():
    layer, poses = layer_of("eighteen parents")
    with of_threads(1):
        alone = differentiated(layer, poses, True)
    with of_threads(3):
        together = differentiated(layer, poses, True)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_pose_that_is_no_number_is_not_hidden():
    layer, poses = layer_of("eighteen parents")
    poses[1, 4] = np.nan
    with cpu.host_calls(True):
        parents, _ = layer(poses)
    assert np.isnan(np.asarray(parents)[1]).all()
    assert np.isfinite(np.asarray(parents)[[0, 2]]).all()


@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_the_sum_of_all_votes_is_one_matrix_product(scale):
    layer, poses = layer_of("eighteen parents", scale, create=UniformRouting)
    votes = layer.votes(tf.constant(poses))
    expected, _, history = layer.routing(votes, return_history=True)
    parents, support = layer(tf.constant(poses))
    np.testing.assert_allclose(parents, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(support, np.asarray(history[-1]).mean(axis=1), rtol=1e-6)
    # Votes of these children for these parents are nowhere, compiled or not.
    with cpu.host_calls(False):
        graph = traced(lambda x: layer(x)[0], tf.constant(poses))
    shapes = [tuple(tensor.shape) for operation in graph.get_operations() for tensor in operation.outputs]
    assert tuple(votes.shape) not in shapes


def test_a_gradient_of_a_gradient_is_refused_and_left_to_the_graph():
    layer, poses = layer_of("eighteen parents")
    poses = tf.constant(poses)

    def penalty(host_calls):
        with cpu.host_calls(host_calls), tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(poses)
                value = tf.reduce_sum(layer(poses)[0] ** 2)
            slope = tf.reduce_sum(inner.gradient(value, poses) ** 2)
        return outer.gradient(slope, layer.kernel)

    assert np.abs(penalty(False)).max() > 1e-3
    with pytest.raises(NotImplementedError, match=r"host_calls\(False\)"):
        penalty(True)


def test_no_images_have_a_gradient_of_no_images():
    layer, nothing = DenseCapsules(17, 4, DynamicRouting()), tf.zeros((0, 5, 6))
    with cpu.host_calls(True), tf.GradientTape() as tape:
        tape.watch(nothing)
        value = tf.reduce_sum(layer(nothing))
    poses, kernel = tape.gradient(value, [nothing, layer.kernel.value])
    assert poses.shape == nothing.shape
    np.testing.assert_array_equal(kernel, np.zeros(layer.kernel.shape))


# Where it is used


def tiny(net, **options):
    return net(channels=4, primary_types=2, **options).build((20, 20, 1), 3)


@pytest.mark.parametrize("net", [models.SparseCapsNet, models.UnmaskedCapsNet])
def test_networks_of_many_parents_use_it_in_their_own_steps_only(net):
    model, images = tiny(net, latent_capsules=16), tf.zeros((2, 20, 20, 1))
    assert not calls_the_host(traced(lambda x: model(x), images))
    model.compile()
    assert calls_the_host(traced(lambda: model.predict_step((images,))))


def test_a_network_of_a_few_classes_is_routed_by_the_graph():
    model, images = tiny(models.DynamicCapsNet), tf.zeros((2, 20, 20, 1))
    model.compile()
    assert not calls_the_host(traced(lambda: model.predict_step((images,))))


@pytest.mark.parametrize(
    "options", [{"return_history": True}, {"num_iterations": tf.constant(2)}], ids=["history", "tensor"]
)
def test_what_the_kernel_does_not_give_is_given_by_the_graph(options):
    layer = DenseCapsules(16, 4, DynamicRouting())
    with cpu.host_calls(True):
        assert calls_the_host(traced(lambda x: layer(x), tf.zeros((2, 5, 6))))
        assert not calls_the_host(traced(lambda x: layer(x, **options), tf.zeros((2, 5, 6))))


def test_double_precision_is_routed_by_the_graph():
    layer, poses = layer_of("eighteen parents", dtype="float64")
    with cpu.host_calls(True):
        assert not calls_the_host(traced(lambda x: layer(x), tf.constant(poses.astype("float64"))))


def test_a_routing_with_steps_of_its_own_takes_them():
    class Still(DynamicRouting):
        def step(self, state, votes, activations, iteration):
            return state

    layer = DenseCapsules(16, 4, Still(3))
    poses = tf.random.stateless_normal((2, 5, 6), seed=(0, 0))
    with cpu.host_calls(True):
        np.testing.assert_array_equal(layer(poses), layer(poses, num_iterations=1))


@pytest.mark.parametrize("create", [DynamicRouting, UniformRouting])
def test_zero_iterations_are_refused_in_either_form(create):
    layer = DenseCapsules(16, 4, create())
    for allowed in (True, False):
        with cpu.host_calls(allowed), pytest.raises(ValueError, match="at least 1"):
            layer(tf.zeros((2, 5, 6)), num_iterations=0)


def test_half_precision_rounds_poses_and_matrices_and_nothing_else():
    layer, poses = layer_of("eighteen parents")
    half = DenseCapsules(18, 16, DynamicRouting(), dtype="mixed_bfloat16")
    half.build(poses.shape)
    for weight, other in zip(half.weights, layer.weights, strict=True):
        weight.assign(other)
    layer.kernel.assign(tf.cast(tf.cast(layer.kernel, "bfloat16"), "float32"))
    rounded = tf.cast(tf.cast(poses, "bfloat16"), "float32")
    with cpu.host_calls(True):
        found, expected = half(poses), layer(rounded)[0]
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
