"""Routing as a graph from poses to parents says what the graph over votes says, and what the oracle says."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from routed import (
    PLACES,
    assert_close,
    assert_em_agrees_with_the_oracle,
    capsules,
    differentiated,
    names_of,
    twins,
)
from support import arrays

from capszoo.layers import DenseCapsules, HeinsenCapsules, SharedClassCapsules
from capszoo.routing import DynamicRouting, EMRouting, HeinsenRouting, by_image, cpu, em_coefficients
from capszoo.routing.connections import connections
from capszoo.routing.neighbourhood import Neighbourhood
from capszoo.routing.tracing import for_processors

CLOSE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.fixture
def _one_by_one(monkeypatch):
    """Images are routed one after the other however few votes they have."""
    monkeypatch.setattr(by_image, "AT_ONCE", 0)
    # What was traced for all images at once is not used, and nothing that is traced here is used again.
    twins.cache_clear()
    yield
    twins.cache_clear()


def assert_exact(kind, count):
    single, double = twins(kind, count=count)
    inputs = capsules("benign")
    exact = differentiated(double, inputs, False)
    found = differentiated(single, inputs, False)
    for name, part, expected in zip(names_of(single), found, exact, strict=True):
        assert_close(part, expected, 2e-5, name)


@pytest.mark.usefixtures("_one_by_one")
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("conv, stride 2", 1),
        ("conv, stride 2", 3),
        ("classes", 3),
        ("official, conv", 3),
        ("official, classes", 2),
        ("similarity, coordinates", 1),
        ("similarity, spectral", 2),
        ("recurrent, conv", 2),
        ("vectors, classes", 1),
        # These are made of the same operations.
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("similarity, conv", 2),
                ("recurrent, classes", 1),
                ("vectors, conv", 3),
                ("vectors, recurrent", 2),
                ("vectors, similarity", 1),
            ]
        ),
    ],
)
def test_values_and_gradients_are_those_of_votes_in_float64(kind, count):
    assert_exact(kind, count)


@pytest.mark.usefixtures("_one_by_one", "eagerly")
@pytest.mark.parametrize("kind", ["conv, stride 2", "similarity, conv", "recurrent, conv"])
def test_where_functions_run_eagerly_values_and_gradients_are_those_of_votes(kind):
    assert_exact(kind, 2)


@pytest.mark.parametrize("kind", ["conv, stride 1", "official, conv", "similarity, classes"])
def test_images_at_once_have_values_and_gradients_of_votes_in_float64(kind):
    assert_exact(kind, 3)


def test_the_gradient_of_coefficients_over_positions_is_the_automatic_one():
    """Of z with several peaks, among which `ops.max` divides its gradient, and with children far below them."""
    images, groups, types = 2, 2, 3
    children = by_image.Children(Neighbourhood(3, 2, (5, 6)).children(groups), 60)
    positions, seen = children.child.shape
    rng = np.random.default_rng(0)
    z = tf.constant(rng.choice([-24.0, -16, -8, 0], size=(images * positions, types, seen)), "float32")
    activations = tf.constant(rng.uniform(0.1, 1, size=(images, 60)), "float32")
    d_share = tf.constant(rng.normal(size=z.shape), "float32")
    coefficients = em_coefficients.OverPositions(children, groups, types)
    with tf.GradientTape() as tape:
        tape.watch(z)
        found, kept = coefficients.of(z)
        value = tf.reduce_sum(d_share * found * children.seen(activations)[:, None])
    automatic = tape.gradient(value, z)
    np.testing.assert_allclose(
        coefficients.gradient(kept, found, activations, d_share), automatic, rtol=1e-4, atol=1e-5
    )


def test_what_is_added_to_the_sums_of_shares_is_a_float16():
    """As which LiteRT files of such weights have it."""
    least = em_coefficients.SCALE * em_coefficients.LEAST
    assert abs(float(np.float16(least)) / least - 1) < 1e-4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_and_columns_times_matrices_and_their_gradients(dtype):
    rng = np.random.default_rng(0)
    row, column, matrices, upstream = (
        tf.constant(rng.normal(size=(2, 3, *size)).astype(dtype)) for size in ((5,), (4,), (5, 4), (4,))
    )
    with tf.GradientTape() as tape:
        tape.watch((row, matrices))
        product = by_image.row_times(row, matrices)
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(product, np.einsum("bpn,bpnm->bpm", row, matrices), **tolerance)
    np.testing.assert_allclose(
        by_image.times_column(matrices, column), np.einsum("bpnm,bpm->bpn", matrices, column), **tolerance
    )
    of_row, of_matrices = tape.gradient(product, (row, matrices), upstream)
    np.testing.assert_allclose(of_row, np.einsum("bpnm,bpm->bpn", matrices, upstream), **tolerance)
    np.testing.assert_allclose(of_matrices, np.einsum("bpn,bpm->bpnm", row, upstream), **tolerance)


@pytest.mark.parametrize("kind", ["conv, stride 2", "similarity, conv", "recurrent, conv"])
def test_no_row_is_multiplied_by_the_operation_that_onednn_replaces(kind):
    layer, _ = twins(kind, count=1)
    served = tf.function(lambda *children: layer(children), autograph=False)
    with cpu.host_calls(False):
        graph = served.get_concrete_function(
            *(tf.constant(part.astype("float32")) for part in capsules("benign"))
        ).graph
    bodies = [
        graph,
        *(function.graph for function in graph._functions.values() if hasattr(function, "graph")),
    ]
    products = [
        operation for body in bodies for operation in body.get_operations() if "MatMul" in operation.type
    ]
    replaced = [
        operation.name
        for operation in products
        if operation.type == "BatchMatMulV2" and 1 in operation.outputs[0].shape[-2:]
    ]
    assert any(operation.type == "BatchMatMulV3" for operation in products)
    assert not replaced


def test_sums_of_votes_are_made_without_them():
    child, rng = Neighbourhood(3, 2, (5, 7)).children(2), np.random.default_rng(0)
    poses, matrices, addition = (rng.normal(size=size) for size in ((3, 70, 9), (18, 3, 12), (18, 9)))
    poses, matrices = poses.astype("float32"), matrices.astype("float32")
    votes = by_image.Votes(connections(child, np.arange(18), addition, np.zeros(child.shape)), 70, 3)
    upstream, children = rng.normal(size=(18, 4, 9)).astype("float32"), tf.constant(poses)

    def differentiated(sums):
        with tf.GradientTape() as tape:
            tape.watch(children)
            found = sums(children)
        return found, tape.gradient(found, children, upstream)

    found = differentiated(lambda children: votes.sums(children, matrices))
    expected = differentiated(
        lambda children: tf.reduce_sum(votes.of(votes.rows(children), matrices), axis=2)
    )
    for part, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(part, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("place", PLACES[:4])
@pytest.mark.parametrize("strides", [1, 2])
def test_em_agrees_with_the_oracle(place, strides):
    assert_em_agrees_with_the_oracle(place, strides, host_calls=False)


@pytest.mark.rewritten
@pytest.mark.usefixtures("_one_by_one")
@pytest.mark.parametrize("how", ["graph", "xla"])
@pytest.mark.parametrize(
    "kind",
    [
        "conv, stride 2",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("official, conv", "recurrent, conv")),
    ],
)
def test_it_says_the_same_however_it_is_run(kind, how):
    layer, _ = twins(kind, count=2)
    children = [tf.constant(part.astype("float32")) for part in capsules("benign")]

    def differentiate(*children):
        with cpu.host_calls(False), tf.GradientTape() as tape:
            tape.watch(children)
            poses, activations = layer(children)
            value = tf.reduce_sum(tf.sin(poses)) + tf.reduce_sum(activations**2)
        return poses, activations, *tape.gradient(value, children)

    expected = arrays(differentiate(*children))
    # Of any number of images, first without XLA: it can compile no gradient of a loop that was traced so.
    for compiles in (False, True) if how == "xla" else (False,):
        signature = [tf.TensorSpec((None, *part.shape[1:])) for part in children]
        served = tf.function(differentiate, signature, autograph=False, jit_compile=compiles)
        for found, part in zip(arrays(served(*children)), expected, strict=True):
            np.testing.assert_allclose(found, part, rtol=2e-3, atol=2e-5)


@pytest.mark.usefixtures("_one_by_one", "accelerator")
def test_what_was_traced_for_an_accelerator_is_no_graph_for_processors():
    layer, _ = twins("conv, stride 2", count=2)

    def loops():
        specs = [tf.TensorSpec((None, *part.shape[1:])) for part in capsules("benign")]
        served = tf.function(lambda *children: layer(children), specs, autograph=False)
        functions = served.get_concrete_function().graph.as_graph_def().library.function
        return [node.op for function in functions for node in function.node_def if "While" in node.op]

    with cpu.host_calls(False):
        assert not loops()
        with for_processors():
            assert loops()


@pytest.mark.usefixtures("_one_by_one")
def test_a_batch_of_any_size_is_one_trace():
    layer, _ = twins("conv, stride 2", count=2)
    poses, activations = (part.astype("float32") for part in capsules("benign"))
    specs = [tf.TensorSpec((None, *part.shape[1:])) for part in (poses, activations)]

    @tf.function(autograph=False)
    def route(poses, activations):
        with cpu.host_calls(False):
            return layer((poses, activations))

    served = route.get_concrete_function(*specs)
    with cpu.host_calls(False):
        expected = layer((poses, activations))
    for size in (0, 1, 3):
        found = served(tf.constant(poses[:size]), tf.constant(activations[:size]))
        for part, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(part, other[:size], **CLOSE)


def test_children_that_no_parent_sees_have_no_gradient():
    layer, _ = twins("conv, stride 2", count=3)
    *_, d_poses, d_activations = differentiated(layer, capsules("benign"), False)[:4]
    # Windows of three with stride two do not reach the last column of six.
    assert np.abs(d_poses[:, :, :5]).min() > 0
    assert np.all(d_poses[:, :, 5] == 0)
    assert np.all(d_activations[:, :, 5] == 0)


class Wrapped(keras.layers.Layer):
    """Somebody's layer around one of ours, which Keras builds by calling it with symbols."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, children):
        return self.inner(children)


@pytest.mark.parametrize(
    "inner",
    [
        lambda: DenseCapsules(3, 4, DynamicRouting()),
        lambda: SharedClassCapsules(3, EMRouting()),
        lambda: HeinsenCapsules(3, HeinsenRouting()),
    ],
    ids=["dynamic", "em", "heinsen"],
)
def test_a_layer_that_is_built_inside_another_one_keeps_its_weights(inner):
    """A trace made while Keras builds the outer one would keep initial values for all later calls."""
    layer = Wrapped(inner())
    shapes = {DenseCapsules: [(5, 6)], HeinsenCapsules: [(5, 4, 4), (5,)]}.get(
        type(layer.inner), [(4, 4, 2, 4, 4), (4, 4, 2)]
    )
    rng = np.random.default_rng(0)
    children = [rng.uniform(size=(2, *shape)).astype("float32") for shape in shapes]
    inputs = [keras.Input(shape) for shape in shapes]
    single = len(shapes) == 1
    with cpu.host_calls(False):
        model = keras.Model(inputs, layer(inputs[0] if single else tuple(inputs)))
        with tf.GradientTape() as tape:
            outputs = keras.tree.flatten(model(children, training=True))
            total = sum(tf.reduce_sum(tf.square(output)) for output in outputs)
        gradients = tape.gradient(total, layer.trainable_variables)
    missing = [v.path for v, g in zip(layer.trainable_variables, gradients, strict=True) if g is None]
    assert not missing
