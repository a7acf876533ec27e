"""Layers of capsules with poses of every routing, in float32 and float64, with children in benign and hard places."""

import functools

import numpy as np
import tensorflow as tf
from oracles import em_routing as oracle
from oracles import variational_bayes_routing as variational_bayes

from capszoo.layers import ConvCapsules, NormalisedClassCapsules, NormalisedConvCapsules, SharedClassCapsules
from capszoo.routing import EMRouting, KernelRouting, LSTMRouting, VariationalBayesRouting, cpu

SIDE = 4
# As the docstring of `EMRouting` promises them.
VARIANCE_FLOOR, MASS_FLOOR, DENSE_MASS_FLOOR = 5e-4, 1e-7, 1e-5
COORDINATES = np.linspace(-1, 1, 5), np.linspace(-0.5, 0.5, 6)
PLACES = ["benign", "equal votes", "silent children", "one active child", "far from zero"]


def capsules(place, images=3, grid=(5, 6), types=2, seed=0):
    """Children in a benign or a hard place: poses `[B, H, W, types, 4, 4]` and activations `[B, H, W, types]`."""
    rng = np.random.default_rng(seed)
    poses = rng.normal(size=(images, *grid, types, SIDE, SIDE))
    activations = rng.uniform(0.05, 1, size=(images, *grid, types))
    if place == "equal votes":
        poses[:] = poses[:, :1, :1, :1]
    elif place == "silent children":
        activations[:] = 0
    elif place == "one active child":
        activations[:] = 0
        activations[:, 2, 2, 0] = 1
    elif place == "far from zero":
        poses += 30
    return poses, activations


def convolutional(types=3, strides=1, count=3, final_lambda=0.2, dtype="float32", variant="paper", **pose):
    routing = EMRouting(count, variant, final_lambda=final_lambda, dtype=dtype)
    return ConvCapsules(types, 3, strides, routing, dtype=dtype, **pose)


def shared_class(types=3, count=3, final_lambda=0.2, dtype="float32", variant="paper", **pose):
    routing = EMRouting(count, variant, final_lambda=final_lambda, dtype=dtype)
    return SharedClassCapsules(types, routing, COORDINATES, dtype=dtype, **pose)


def normalised_class(types=3, count=3, final_lambda=0.2, dtype="float32", **pose):
    routing = EMRouting(count, final_lambda=final_lambda, dtype=dtype)
    return NormalisedClassCapsules(types, routing, dtype=dtype, **pose)


def official(layer, **fixed):
    """`layer` with the authors' variant, whose cost is larger."""
    return lambda **options: layer(variant="official", **{"final_lambda": 0.01, **fixed, **options})


def similar(layer, kernel="gaussian"):
    """`layer(routing)` with similarity-learning routing, which has no temperature."""

    def create(types=3, count=3, final_lambda=None, dtype="float32"):
        return layer(types, KernelRouting(4, kernel, num_iterations=count, dtype=dtype), dtype=dtype)

    return create


def variational(layer):
    """`layer(routing)` with variational-Bayes routing, which has no temperature."""

    def create(types=3, count=3, final_lambda=None, dtype="float32"):
        return layer(types, VariationalBayesRouting(count, dtype=dtype), dtype=dtype)

    return create


def recurrent(layer, **routing):
    """`layer(routing)` with connectionist routing, which has no temperature either."""

    def create(types=3, count=3, final_lambda=None, dtype="float32"):
        return layer(types, LSTMRouting(num_iterations=count, dtype=dtype, **routing), dtype=dtype)

    return create


KINDS = {
    "conv, stride 1": convolutional,
    "conv, stride 2": lambda **options: convolutional(strides=2, **options),
    "conv, 20 types": lambda **options: convolutional(types=20, **options),
    "classes": shared_class,
    "normalised classes": normalised_class,
    "official, conv": official(convolutional, strides=2),
    "official, 20 types": official(convolutional, types=20),
    "official, classes": official(shared_class),
    "similarity, conv": similar(
        lambda types, *rest, **options: NormalisedConvCapsules(types, 3, 2, *rest, **options)
    ),
    "similarity, classes": similar(NormalisedClassCapsules),
    "similarity, coordinates": similar(
        lambda types, routing, **options: SharedClassCapsules(types, routing, COORDINATES, **options)
    ),
    "variational, conv": variational(
        lambda types, *rest, **options: ConvCapsules(types, 3, 2, *rest, **options)
    ),
    "variational, 20 types": variational(
        lambda types, *rest, **options: ConvCapsules(20, 3, 1, *rest, **options)
    ),
    "variational, classes": variational(
        lambda types, routing, **options: SharedClassCapsules(types, routing, COORDINATES, **options)
    ),
    "recurrent, conv": recurrent(
        lambda types, *rest, **options: NormalisedConvCapsules(types, 3, 2, *rest, **options), units=5
    ),
    "recurrent, classes": recurrent(
        NormalisedClassCapsules, units=8, compatibility=(6,), activation=(7, 4), state_roles="code"
    ),
    "recurrent, 20 types": recurrent(
        lambda types, *rest, **options: ConvCapsules(20, 3, 1, *rest, **options),
        units=4,
        compatibility=(8, 3),
    ),
}

# Layers whose poses are vectors.
VECTORS = {
    "vectors, conv": lambda **options: convolutional(strides=2, pose="vector", **options),
    "vectors, 20 types": lambda **options: convolutional(types=20, pose="vector", **options),
    "vectors, classes": lambda **options: shared_class(pose="vector", **options),
    "vectors, normalised classes": lambda **options: normalised_class(pose="vector", **options),
    "vectors, similarity": similar(
        lambda types, *rest, **options: ConvCapsules(types, 3, 2, *rest, pose="vector", **options)
    ),
    "vectors, variational": variational(
        lambda types, *rest, **options: ConvCapsules(types, 3, 2, *rest, pose="vector", **options)
    ),
    "vectors, recurrent": recurrent(
        lambda types, *rest, **options: ConvCapsules(types, 3, 2, *rest, pose="vector", **options), units=5
    ),
}

# What has no compiled form.
GRAPHS = {"similarity, spectral": similar(NormalisedClassCapsules, "spectral")}


@functools.cache
def twins(kind, **options):
    """Two layers with the same weights: float32, which can be fused, and the graph in float64.

    Shared, because tracing costs more than computing: leave their weights.
    """
    pair = [(KINDS | VECTORS | GRAPHS)[kind](dtype=dtype, **options) for dtype in ("float32", "float64")]
    for layer in pair:
        layer.build(tuple(part.shape for part in posed(layer, capsules("benign"))))
    rng = np.random.default_rng(1)
    # Votes are as large with vectors, whose products have more terms.
    scale = 1.0 / np.sqrt(pair[0].width)
    values = [scale * rng.normal(size=weight.shape) for weight in pair[0].weights]
    for layer in pair:
        for weight, value in zip(layer.weights, values, strict=True):
            weight.assign(value.astype("float32"))
    return pair


def posed(layer, capsules):
    """Capsules whose poses are what the layer takes: matrices, or the same numbers as vectors."""
    poses, activations = capsules
    return np.reshape(poses, (*activations.shape, *layer.pose_shape)), activations


def differentiated(layer, inputs, host_calls):
    """Outputs, and the gradients of a random sum of them, of poses, activations and weights."""
    inputs = [tf.constant(part.astype(layer.dtype)) for part in posed(layer, inputs)]
    rng = np.random.default_rng(2)
    with cpu.host_calls(host_calls), tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(tuple(inputs))
        value = sum(tf.reduce_sum(rng.normal(size=part.shape).astype(layer.dtype) * part) for part in outputs)
    weights = [weight.value for weight in layer.trainable_weights]
    gradients = tape.gradient(value, [*inputs, *weights])
    return [np.asarray(part, "float64") for part in (*outputs, *gradients)]


def names_of(layer):
    """What `differentiated` returns."""
    return ["poses", "activations", "d poses", "d activations", *(w.path for w in layer.trainable_weights)]


def assert_close(found, expected, tolerance, name=""):
    """In the norm, since single entries of a gradient may cancel, and all of it where nothing depends on a weight."""
    scale = np.linalg.norm(expected) + 0.1
    assert np.linalg.norm(found - expected) <= tolerance * scale, name


def assert_em_agrees_with_the_oracle(place, strides, host_calls):
    """EM routing of convolutional capsules, compiled or as a graph, and the oracle on votes made here."""
    poses, activations = capsules(place)
    layer, _ = twins(f"conv, stride {strides}", count=3)
    expected = oracle.em_routing(
        votes_between(poses, layer, strides),
        activations,
        np.asarray(layer.routing.beta_u, "float64"),
        np.asarray(layer.routing.beta_a, "float64"),
        3,
        stride=strides,
        final_lambda=0.2,
        variance_floor=VARIANCE_FLOOR,
        mass_floor=MASS_FLOOR,
    )
    assert_parents(layer, (poses, activations), host_calls, expected)


def assert_variational_bayes_agrees_with_the_oracle(place, host_calls):
    """The same of variational-Bayes routing."""
    poses, activations = capsules(place)
    layer, _ = twins("variational, conv", count=3)
    betas = {name: np.asarray(getattr(layer.routing, name), "float64") for name in ("beta_u", "beta_a")}
    votes = votes_between(poses, layer, 2)
    expected = variational_bayes.variational_bayes_routing(votes, activations, **betas, stride=2)
    assert_parents(layer, (poses, activations), host_calls, expected)


def votes_between(poses, layer, strides):
    """Votes `[B, H', W', 3, 3, types, O, 16]` of a convolutional layer, in float64."""
    windows = np.lib.stride_tricks.sliding_window_view(poses, (3, 3), axis=(1, 2))[:, ::strides, ::strides]
    # [B, H', W', types, row, column, ky, kx] with [ky, kx, types, column, O, entry]
    votes = np.einsum("bhwircyx,yxicoe->bhwyxiore", windows, np.asarray(layer.kernel, "float64"))
    return votes.reshape(*votes.shape[:-2], SIDE * SIDE)


def assert_parents(layer, inputs, host_calls, expected):
    """The parents of a layer are those that an oracle expects."""
    with cpu.host_calls(host_calls):
        found, scores = layer(tuple(part.astype("float32") for part in inputs))
    close = {"rtol": 2e-4, "atol": 2e-5}
    np.testing.assert_allclose(np.reshape(found, expected["poses"].shape), expected["poses"], **close)
    np.testing.assert_allclose(scores, expected["activations"], **close)
