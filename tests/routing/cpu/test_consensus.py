"""Compiled similarity learning and the compiled LSTM say what their oracles say, and slope as those do."""

import numpy as np
import pytest
import tensorflow as tf
from conformance.goldens import ROUTINGS
from support import fill, numeric_gradient

from capszoo.layers import NormalisedClassCapsules
from capszoo.routing import KernelRouting, LSTMRouting, cpu

ORACLES = {golden.name: golden.oracle for golden in ROUTINGS}
NETWORKS = {"units": 3, "compatibility": (5,), "activation": (2,)}
KINDS = {
    "kernel": lambda count: KernelRouting(3, num_iterations=count),
    "lstm": lambda count: LSTMRouting(num_iterations=count, **NETWORKS),
    "lstm_code": lambda count: LSTMRouting(num_iterations=count, state_roles="code", **NETWORKS),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
PARENTS = 3


def capsules(images):
    """Four children: poses `[B, 1, 2, 2, 4, 4]` and activations `[B, 1, 2, 2]`."""
    rng = np.random.default_rng(0)
    poses = rng.normal(size=(images, 1, 2, 2, 4, 4))
    return poses.astype("float32"), rng.uniform(0.1, 0.9, size=(images, 1, 2, 2)).astype("float32")


def made(kind, count):
    layer = NormalisedClassCapsules(PARENTS, KINDS[kind](count))
    layer.build(tuple(part.shape for part in capsules(1)))
    return fill(layer)


def by_oracle(layer, kind, count, poses, activations):
    """Poses `[B, O, 4, 4]` and activations `[B, O]` of the parents, in float64."""
    kernel = np.asarray(layer.kernel, "float64")
    matrices = kernel / np.sqrt(np.sum(kernel**2, axis=(-3, -1), keepdims=True) + 1e-5)
    # A pose is listed column by column: the LSTM's weights are for that order.
    votes = np.einsum("bhwtrc,hwtcoe->bhwtoer", np.asarray(poses, "float64"), matrices)
    votes = votes.reshape(len(poses), -1, PARENTS, 16)
    weights = {weight.name: np.asarray(weight, "float64") for weight in layer.routing.weights}
    found = ORACLES[kind](votes, np.asarray(activations, "float64").reshape(len(poses), -1), weights, count)
    return found["poses"].reshape(-1, PARENTS, 4, 4).swapaxes(-1, -2), found["activations"]


@pytest.mark.parametrize("count", [1, 3])
@every_kind
def test_it_agrees_with_the_oracle(kind, count):
    layer, inputs = made(kind, count), capsules(5)
    with cpu.host_calls(True):
        found = layer(inputs)
    for part, expected in zip(found, by_oracle(layer, kind, count, *inputs), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-5)


@every_kind
def test_its_gradients_are_the_slopes_of_the_oracle(kind):
    layer, inputs = made(kind, 2), [tf.constant(part) for part in capsules(1)]
    rng = np.random.default_rng(1)
    mixes = rng.normal(size=(1, PARENTS, 4, 4)), rng.normal(size=(1, PARENTS))
    with cpu.host_calls(True), tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(tuple(inputs))
        value = sum(
            tf.reduce_sum(mix.astype("float32") * part) for mix, part in zip(mixes, outputs, strict=True)
        )
    gradients = tape.gradient(value, inputs)
    for place in (0, 1):

        def mixed(part, place=place):
            given = [part if number == place else np.asarray(each) for number, each in enumerate(inputs)]
            results = by_oracle(layer, kind, 2, *given)
            return sum(np.sum(mix * result) for mix, result in zip(mixes, results, strict=True))

        slopes = numeric_gradient(mixed, np.asarray(inputs[place], "float64"))
        np.testing.assert_allclose(gradients[place], slopes, rtol=1e-3, atol=2e-4)
