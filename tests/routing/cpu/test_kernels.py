"""Routing as a compiled kernel says what the graph and the oracle say; and it stays where it belongs."""

import builtins
import contextlib
import functools
import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import numba
import numpy as np
import pytest
import tensorflow as tf
from routed import (
    KINDS,
    PLACES,
    VECTORS,
    assert_close,
    assert_em_agrees_with_the_oracle,
    assert_variational_bayes_agrees_with_the_oracle,
    capsules,
    differentiated,
    names_of,
    posed,
    twins,
)
from support import fill

from capszoo import models
from capszoo.layers import ConvCapsules
from capszoo.routing import EMRouting, KernelRouting, LSTMRouting, cpu
from capszoo.routing.cpu import lanes, threads, votes
from capszoo.routing.cpu.votes import CHUNK

pytestmark = pytest.mark.usefixtures("eagerly")


@contextlib.contextmanager
def of_threads(count):
    """Inside, kernels run on so many threads."""
    with ThreadPoolExecutor(count) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "_pool", lambda: pool)
        patch.setattr(threads, "_cores", lambda: count)
        yield


def assert_as_good_as_the_graph(single, double, inputs):
    """Where float32 itself is not enough, it is not enough for either."""
    exact = differentiated(double, inputs, False)
    forms = differentiated(single, inputs, True), differentiated(single, inputs, False)
    for name, kernel, graph, expected in zip(names_of(single), *forms, exact, strict=True):
        # In the norm, since single entries of a gradient may cancel.
        scale = np.linalg.norm(expected) + 1e-6
        error, allowed = (np.linalg.norm(found - expected) / scale for found in (kernel, graph))
        assert error <= 4 * allowed + 2e-5, name


# One iteration has no coefficients but the uniform ones: every routing once, and in a graph.
ONCE = [
    pytest.param(kind, 1, marks=pytest.mark.rewritten)
    for kind in ("conv, stride 2", "similarity, conv", "recurrent, conv")
]
# Others have the same routing, and others the same places and poses.
ALIKE = {
    "similarity, classes",
    "variational, 20 types",
    "vectors, 20 types",
    "vectors, normalised classes",
    "vectors, similarity",
    "vectors, variational",
}
THRICE = [
    pytest.param(kind, 3, marks=pytest.mark.slow if kind in ALIKE else []) for kind in (KINDS | VECTORS)
]


@pytest.mark.parametrize(("kind", "count"), [*THRICE, *ONCE])
def test_values_and_gradients_are_those_of_the_graph_in_float64(kind, count):
    single, double = twins(kind, count=count)
    inputs = capsules("benign")
    exact = differentiated(double, inputs, False)
    names = names_of(single)
    for name, found, expected in zip(names, differentiated(single, inputs, True), exact, strict=True):
        assert_close(found, expected, 2e-5, name)


@pytest.mark.parametrize("place", PLACES[1:])
@pytest.mark.parametrize(
    "kind",
    [
        "conv, stride 2",
        "classes",
        "official, conv",
        "official, classes",
        "similarity, conv",
        "variational, conv",
    ],
)
def test_in_hard_places_it_is_as_good_as_the_graph(kind, place):
    inputs = capsules(place)
    assert_as_good_as_the_graph(*twins(kind, final_lambda=0.01), inputs)


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("place", ["benign", "one active child", "silent children", "equal votes"])
def test_it_agrees_with_the_oracle(place, strides):
    assert_em_agrees_with_the_oracle(place, strides, host_calls=True)


# In the others there are parents without children, whose mean the oracle does not know.
@pytest.mark.parametrize("place", ["benign", "one active child", "equal votes"])
def test_variational_bayes_agrees_with_the_oracle(place):
    assert_variational_bayes_agrees_with_the_oracle(place, host_calls=True)


# The graphs of one routing differ in nothing that an empty batch meets.
AS_GRAPH = (
    "conv, stride 2",
    "official, conv",
    "classes",
    "similarity, conv",
    "recurrent, conv",
    "vectors, conv",
)
EMPTY = [*((kind, True) for kind in (*KINDS, "vectors, conv")), *((kind, False) for kind in AS_GRAPH)]


@pytest.mark.rewritten
@pytest.mark.parametrize(("kind", "host_calls"), EMPTY)
def test_no_images_have_no_parents_and_no_gradient(kind, host_calls):
    layer, _ = twins(kind, count=3)
    nothing = [part.astype("float32") for part in posed(layer, capsules("benign", images=0))]

    @tf.function  # Traced for a batch that is known to be empty.
    def differentiate(*inputs):
        with cpu.host_calls(host_calls), tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs)
            value = sum(tf.reduce_sum(part) for part in outputs)
        return outputs, tape.gradient(value, [*inputs, *(weight.value for weight in layer.trainable_weights)])

    outputs, gradients = differentiate(*map(tf.constant, nothing))
    assert [part.shape[0] for part in outputs] == [0, 0]
    for gradient, like in zip(gradients, [*nothing, *layer.trainable_weights], strict=True):
        np.testing.assert_array_equal(gradient, np.zeros(like.shape))


@pytest.mark.parametrize("scale", [1e6, 1e11, 1e15])
@pytest.mark.parametrize("kind", ["conv, stride 2", "classes"])
def test_poses_of_any_size_have_the_activations_of_the_graph_in_float64(kind, scale):
    poses, activations = capsules("benign")
    inputs = scale * poses, activations
    # Small beside the cost, so that no activation is zero or one.
    single, double = twins(kind, count=2, final_lambda=1e-3)
    with cpu.host_calls(True):
        _, found = single(tuple(part.astype("float32") for part in inputs))
    with cpu.host_calls(False):
        _, expected = double(inputs)
    assert np.ptp(expected) > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize(
    "kind",
    [
        "conv, stride 2",
        "conv, 20 types",
        "official, conv",
        "similarity, conv",
        "variational, conv",
        "recurrent, conv",
        "vectors, 20 types",
    ],
)
def test_votes_made_for_every_pass_are_those_that_are_kept(kind, monkeypatch):
    inputs = capsules("benign")
    layer, _ = twins(kind, count=3)
    kept = differentiated(layer, inputs, True)
    monkeypatch.setattr(votes, "CACHED", 0)
    for one, other in zip(kept, differentiated(layer, inputs, True), strict=True):
        np.testing.assert_array_equal(one, other)


def test_gradients_do_not_depend_on_the_number_of_threads():
    inputs = capsules("benign", images=2 * CHUNK + 1)
    layer, _ = twins("conv, stride 2", count=3)
    with of_threads(1):
        alone = differentiated(layer, inputs, True)
    with of_threads(3):
        together = differentiated(layer, inputs, True)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_gradient_of_a_gradient_is_refused_and_left_to_the_graph():
    layer, _ = twins("normalised classes", count=1)
    poses, activations = (tf.constant(part.astype("float32")) for part in capsules("benign"))

    def penalty(host_calls):
        with cpu.host_calls(host_calls), tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(poses)
                value = tf.reduce_sum(layer((poses, activations))[0] ** 2)
            slope = tf.reduce_sum(inner.gradient(value, poses) ** 2)
        return outer.gradient(slope, layer.trainable_weights[0].value)

    assert np.abs(penalty(False)).max() > 1e-3
    with pytest.raises(NotImplementedError, match=r"host_calls\(False\)"):
        penalty(True)


@pytest.mark.parametrize("kind", ["conv, stride 1", "recurrent, conv"])
def test_a_vote_that_is_no_number_is_not_hidden(kind):
    poses, activations = capsules("benign")
    layer, _ = twins(kind, count=3)
    poses[0, 2, 2, 0] = np.nan
    with cpu.host_calls(True):
        found, _ = layer((poses.astype("float32"), activations.astype("float32")))
    assert np.isnan(np.asarray(found)[0]).any()
    assert np.isfinite(np.asarray(found)[1:]).all()


def test_the_exponential_of_lanes_is_exact_to_single_precision():
    @numba.njit
    def exponentials(x, y):
        for offset in range(0, len(x), lanes.LANES):
            lanes.store(y, offset, lanes.exp(lanes.load(x, offset)))

    x = np.linspace(-79.9, 80, 16000).astype("float32")
    y = np.empty_like(x)
    exponentials(x, y)
    np.testing.assert_allclose(y, np.exp(x.astype("float64")), rtol=2e-7)
    x[:] = -81
    exponentials(x, y)
    np.testing.assert_array_equal(y, 0)


@pytest.mark.parametrize(("name", "tolerance"), [("sigmoid", 1.5e-7), ("tanh", 2e-7)])
def test_sigmoid_and_tanh_of_lanes_are_exact_saturate_and_hide_nothing(name, tolerance):
    function = getattr(lanes, name)

    @numba.njit
    def values(x, y):
        for offset in range(0, len(x), lanes.LANES):
            lanes.store(y, offset, function(lanes.load(x, offset)))

    exact = {"sigmoid": lambda x: 0.5 + 0.5 * np.tanh(0.5 * x), "tanh": np.tanh}[name]
    x = np.append(np.linspace(-30, 30, 16000), [-np.inf, -1e30, -200, 200, 1e30, np.inf, 0, np.nan] * 2)
    x = x.astype("float32")
    y = np.empty_like(x)
    values(x, y)
    np.testing.assert_allclose(y, exact(x.astype("float64")), rtol=0, atol=tolerance)


# Where it is used


@functools.cache
def small_model():
    """Shared: leave its weights."""
    net = models.MatrixCapsNet(channels=4, primary_types=2, conv1_types=2, conv2_types=2)
    return net.build((20, 20, 1), 3)


def calls_the_host(graph):
    functions = [graph, *(function.graph for function in graph._functions.values())] if graph else []
    return any("PyFunc" in operation.type for each in functions for operation in each.get_operations())


def traced(function, *arguments):
    return tf.function(function).get_concrete_function(*arguments).graph


def test_a_graph_that_somebody_makes_of_the_model_never_calls_back():
    model = small_model()
    images = tf.zeros((2, 20, 20, 1))
    assert not calls_the_host(traced(lambda x: model(x), images))
    with cpu.host_calls(True):
        assert calls_the_host(traced(lambda x: model(x), images))


@pytest.mark.parametrize("step", ["train_step", "test_step", "predict_step"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_models_own_steps_use_it_unless_they_are_compiled_with_xla(step, jit_compile):
    model = small_model()
    model.compile("sgd", loss={"scores": "mse", "poses": None}, jit_compile=jit_compile)
    model.optimizer.build(model.trainable_variables)
    images, scores = tf.zeros((2, 20, 20, 1)), tf.zeros((2, 3))
    data = (images,) if step == "predict_step" else (images, {"scores": scores})
    assert calls_the_host(traced(lambda: getattr(model, step)(data))) is not jit_compile


def test_predictions_by_the_kernel_and_by_xla_agree():
    model = small_model()
    images = np.random.default_rng(0).normal(size=(3, 20, 20, 1)).astype("float32")
    found = []
    for jit_compile in (False, True):
        model.compile(jit_compile=jit_compile)
        found.append(model.predict_on_batch(images))
    for name, values in found[0].items():
        np.testing.assert_allclose(values, found[1][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "routing",
    [
        EMRouting(2, activation="mixing"),
        EMRouting(2, dtype="float64"),
        KernelRouting(2, kernel="spectral"),
        LSTMRouting(2, dtype="float64"),
    ],
    ids=["mixing", "double", "spectral", "lstm in double"],
)
def test_what_no_kernel_knows_is_routed_by_the_graph(routing):
    layer = ConvCapsules(2, 3, 1, routing)
    inputs = [tf.constant(part.astype("float32")) for part in capsules("benign")]
    with cpu.host_calls(True):
        assert not calls_the_host(traced(lambda *parts: layer(parts), *inputs))


@pytest.mark.parametrize(
    "options", [{"return_history": True}, {"num_iterations": tf.constant(2)}], ids=["history", "tensor"]
)
def test_what_the_kernel_does_not_give_is_given_by_the_graph(options):
    layer, _ = twins("conv, stride 1", count=3)
    inputs = [tf.constant(part.astype("float32")) for part in capsules("benign")]
    with cpu.host_calls(True):
        assert not calls_the_host(traced(lambda *parts: layer(parts, **options), *inputs))


def test_zero_iterations_are_refused_in_either_form():
    layer, _ = twins("conv, stride 1", count=3)
    inputs = tuple(part.astype("float32") for part in capsules("benign"))
    for allowed in (True, False):
        with cpu.host_calls(allowed), pytest.raises(ValueError, match="at least 1"):
            layer(inputs, num_iterations=0)


def test_without_a_compiler_the_graph_routes(monkeypatch):
    with cpu.host_calls(True):
        assert cpu.enabled()
        monkeypatch.setitem(sys.modules, "numba", None)
        assert not cpu.enabled()


def test_without_a_compiler_that_works_the_graph_routes(monkeypatch):
    real = builtins.__import__

    def refuse(name, *arguments):
        if name == "numba":
            raise ImportError("Numba needs NumPy 2.5 or less")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refuse)
    cpu._numba_works.cache_clear()
    try:
        with cpu.host_calls(True), pytest.warns(UserWarning, match="slower than compiled: Numba needs NumPy"):
            assert not cpu.enabled()
    finally:
        cpu._numba_works.cache_clear()


@pytest.mark.parametrize("compiled", [True, False])
def test_half_precision_rounds_capsules_and_kernels_and_not_their_routing(compiled):
    """As a layer of float32 whose capsules and kernel have been rounded."""
    inputs = [part.astype("float32") for part in capsules("benign")]
    half = ConvCapsules(3, 3, 1, EMRouting(3), dtype="mixed_bfloat16")
    whole = ConvCapsules(3, 3, 1, EMRouting(3), dtype="float32")
    for layer in (half, whole):
        layer.build(tuple(part.shape for part in inputs))
        fill(layer)
    whole.kernel.assign(rounded(whole.kernel))
    with cpu.host_calls(compiled):
        outputs, expected = half(tuple(inputs)), whole(tuple(map(rounded, inputs)))
        unrounded = whole(tuple(inputs))
    for output, other, exact in zip(outputs, expected, unrounded, strict=True):
        assert keras.backend.standardize_dtype(output.dtype) == "float32"
        np.testing.assert_array_equal(output, other)
        assert np.abs(output - exact).max() > 1e-4


def rounded(array):
    """Numbers of float32 as bfloat16 holds them."""
    return tf.cast(tf.cast(array, "bfloat16"), "float32")
