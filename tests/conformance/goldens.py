"""The list of what must conform: one entry for each routing, layer, architecture, tiny model and preset.

A new routing, layer or paper adds its entries here and is then held to every property in this folder; one without
an entry fails `test_coverage.py`. Nothing here needs a backend other than Keras's own, so that `jax_twin.py` reads
the same list.
"""

import dataclasses
import zlib
from collections.abc import Callable

import keras
import numpy as np
from oracles import attention_capsules
from oracles import dynamic_routing as oracle
from oracles import kernel_routing as kernel_oracle
from oracles.em_routing import em_routing_dense
from oracles.heinsen_routing import heinsen_routing
from oracles.inverted_attention_routing import inverted_attention_routing
from oracles.lstm_routing import lstm_routing
from oracles.self_attention_routing import self_attention_routing
from oracles.self_routing import self_routing
from oracles.variational_bayes_routing import variational_bayes_routing_dense
from tiny import STACKED

from capszoo import layers, models, routing


def _numbers(name, *shapes):
    """Arrays of normal numbers that depend on `name` only."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def _logistic(logits):
    """Activations, in [0, 1]."""
    return 1 / (1 + np.exp(-logits))


@dataclasses.dataclass(frozen=True, eq=False)
class RoutingGolden:
    """A routing and its oracle.

    where:
      create: makes the layer; takes Keras's own keywords, such as `dtype`.
      oracle: `(votes, activations, weights, num_iterations)` -> dict of `poses`, `activations` and `coefficients`
        (one per iteration), in float64; `weights` by name.
      weights: shape of each weight for `votes_shape`, by name.
      per_parent: the weights whose first axis counts parents.
      per_child: the weights whose last axis counts children.
      share: what a child gives to its parents together: "all" of itself, "some" of it, "fixed" amounts, or "any"
        amount where it is the coefficients of a parent that sum to one.
      iterations: the counts it is tested with.
      takes_activations: whether children's activations matter.
    """

    name: str
    create: Callable
    oracle: Callable
    weights: dict
    per_parent: tuple
    share: str
    iterations: tuple = (1, 2, 3, 5)
    takes_activations: bool = False
    per_child: tuple = ()
    votes_shape: tuple = (2, 6, 4, 5)

    def inputs(self):
        """Votes `[B, I, O, D]` and the children's activations `[B, I]` or None."""
        votes, logits = _numbers(self.name, self.votes_shape, self.votes_shape[:-2])
        return votes, _logistic(logits) if self.takes_activations else None


def _vector_capsules(route):
    """An oracle of `route`, whose parents' activations are the lengths of their poses."""

    def routed(votes, activations, weights, num_iterations):
        result = route(votes, num_iterations, weights.get("bias"))
        return {**result, "activations": np.linalg.norm(result["poses"], axis=-1)}

    return routed


def _em(votes, activations, weights, num_iterations):
    """The oracle of `EMRouting`, with the floors that it keeps under masses and variances."""
    floors = {"variance_floor": 5e-4, "mass_floor": 1e-5}
    betas = weights["beta_u"], weights["beta_a"]
    return em_routing_dense(votes, activations, *betas, num_iterations, final_lambda=0.5, **floors)


def _kernel(votes, activations, weights, num_iterations):
    """The oracle of `KernelRouting`, of either kernel."""

    def similarity(pose, vote):
        if "log_scales" in weights:
            return kernel_oracle.gaussian_mixture(
                pose, vote, weights["mixing"], np.exp(weights["log_scales"])
            )
        spectrum = np.exp(weights["log_bandwidths"]), weights["frequencies"]
        return kernel_oracle.spectral_mixture(pose, vote, weights["mixing"], *spectrum)

    alpha, beta, theta3 = (np.exp(weights[name]) for name in ("log_alpha", "log_beta", "log_theta3"))
    theta = weights["theta1"], weights["theta2"], theta3
    return kernel_oracle.kernel_routing(
        votes, activations, similarity, alpha, beta, theta, num_iterations, floor=1e-6
    )


def _lstm(state_roles):
    """The oracle of an `LSTMRouting` with one hidden layer in each network."""

    def routed(votes, activations, weights, num_iterations):
        cell = weights["kernel"], weights["recurrent_kernel"], weights["bias"]
        compatibility, activation = (
            [(weights[f"{name}_kernel{layer}"], weights[f"{name}_bias{layer}"]) for layer in (1, 2)]
            for name in ("compatibility", "activation")
        )
        return lstm_routing(
            votes, activations, cell, compatibility, activation, num_iterations, state_roles=state_roles
        )

    return routed


def _attention(accumulate):
    """The oracle of an `AttentionRouting`."""
    return lambda votes, activations, weights, num_iterations: attention_capsules.attention(
        votes, weights["query"], num_iterations, accumulate
    )


def _self_attention(votes, activations, weights, num_iterations):
    """The oracle of `SelfAttentionRouting`."""
    result = self_attention_routing(votes, weights["prior"])
    return {**result, "activations": np.linalg.norm(result["poses"], axis=-1)}


def _variational_bayes(votes, activations, weights, num_iterations):
    """The oracle of `VariationalBayesRouting`."""
    betas = weights["beta_u"], weights["beta_a"]
    return variational_bayes_routing_dense(votes, activations, *betas, num_iterations)


def _heinsen(votes, activations, weights, num_iterations):
    """The oracle of `HeinsenRouting`, whose betas may be the same for all children, and weights I times those."""
    children, parents = votes.shape[1:3]
    # [O, I] or [O] -> [I, O] or [1, O]
    use, ignore = (np.reshape(weights[name], (parents, -1)).T for name in ("beta_use", "beta_ignore"))
    if len(use) < children:
        use, ignore = use / children, ignore / children
    logits = np.log(activations) - np.log1p(-activations)
    result = heinsen_routing(votes, logits, use, ignore, num_iterations)
    return {**result, "activations": _logistic(result["logits"])}


_OF_EACH_PARENT = ("log_alpha", "log_beta", "theta1", "theta2", "log_theta3")
_LSTM_WEIGHTS = {
    "kernel": (12, 12),
    "recurrent_kernel": (3, 12),
    "bias": (12,),
    "compatibility_kernel1": (3, 4),
    "compatibility_bias1": (4,),
    "compatibility_kernel2": (4, 1),
    "compatibility_bias2": (1,),
    "activation_kernel1": (3, 6),
    "activation_bias1": (6,),
    "activation_kernel2": (6, 1),
    "activation_bias2": (1,),
}

ROUTINGS = [
    RoutingGolden(
        "dynamic",
        routing.DynamicRouting,
        _vector_capsules(oracle.dynamic_routing),
        weights={"bias": (4, 5)},
        per_parent=("bias",),
        share="all",
    ),
    RoutingGolden(
        "dynamic_without_bias",
        lambda **keywords: routing.DynamicRouting(use_bias=False, **keywords),
        _vector_capsules(oracle.dynamic_routing),
        weights={},
        per_parent=(),
        share="all",
    ),
    RoutingGolden(
        "leaky",
        lambda **keywords: routing.DynamicRouting(leaky=True, **keywords),
        _vector_capsules(lambda votes, count, bias: oracle.dynamic_routing(votes, count, bias, leaky=True)),
        weights={"bias": (4, 5)},
        per_parent=("bias",),
        share="some",
    ),
    RoutingGolden(
        "uniform_sum",
        routing.UniformRouting,
        _vector_capsules(lambda votes, count, bias: oracle.uniform_routing(votes, bias, "sum")),
        weights={"bias": (4, 5)},
        per_parent=("bias",),
        share="fixed",
        iterations=(1,),
    ),
    RoutingGolden(
        "uniform_mean",
        lambda **keywords: routing.UniformRouting("mean", **keywords),
        _vector_capsules(lambda votes, count, bias: oracle.uniform_routing(votes, bias, "mean")),
        weights={"bias": (4, 5)},
        per_parent=("bias",),
        share="all",
        iterations=(1,),
    ),
    RoutingGolden(
        "self_attention",
        routing.SelfAttentionRouting,
        _self_attention,
        weights={"prior": (4, 6)},
        per_parent=("prior",),
        per_child=("prior",),
        share="all",
        iterations=(1,),
    ),
    RoutingGolden(
        "self_routing",
        routing.SelfRouting,
        lambda votes, activations, weights, count: self_routing(votes, activations, weights["bias"]),
        weights={"bias": (4, 6)},
        per_parent=("bias",),
        per_child=("bias",),
        share="all",
        iterations=(1,),
        takes_activations=True,
    ),
    RoutingGolden(
        "heinsen",
        routing.HeinsenRouting,
        _heinsen,
        weights={"beta_use": (4, 6), "beta_ignore": (4, 6)},
        per_parent=("beta_use", "beta_ignore"),
        per_child=("beta_use", "beta_ignore"),
        share="all",
        takes_activations=True,
    ),
    RoutingGolden(
        "heinsen_shared",
        lambda **keywords: routing.HeinsenRouting(shared_betas=True, **keywords),
        _heinsen,
        weights={"beta_use": (4,), "beta_ignore": (4,)},
        per_parent=("beta_use", "beta_ignore"),
        share="all",
        iterations=(1, 3),
        takes_activations=True,
    ),
    RoutingGolden(
        "inverted_attention",
        routing.InvertedAttentionRouting,
        lambda votes, activations, weights, count: inverted_attention_routing(
            votes, weights["scale"], weights["offset"], count
        ),
        weights={"scale": (5,), "offset": (5,)},
        per_parent=(),
        share="all",
    ),
    RoutingGolden(
        "attention",
        routing.AttentionRouting,
        _attention(accumulate=False),
        weights={"query": (4, 5)},
        per_parent=("query",),
        share="any",
        iterations=(1, 2, 3),
    ),
    RoutingGolden(
        "attention_accumulated",
        lambda **keywords: routing.AttentionRouting(accumulate=True, **keywords),
        _attention(accumulate=True),
        weights={"query": (4, 5)},
        per_parent=("query",),
        share="any",
        iterations=(1, 3),
    ),
    RoutingGolden(
        "em",
        lambda **keywords: routing.EMRouting(final_lambda=0.5, **keywords),
        _em,
        weights={"beta_u": (4,), "beta_a": (4,)},
        per_parent=("beta_u", "beta_a"),
        share="all",
        iterations=(1, 3),
        takes_activations=True,
    ),
    RoutingGolden(
        "variational_bayes",
        routing.VariationalBayesRouting,
        _variational_bayes,
        weights={"beta_u": (4,), "beta_a": (4,)},
        per_parent=("beta_u", "beta_a"),
        share="all",
        iterations=(1, 3),
        takes_activations=True,
    ),
    RoutingGolden(
        "kernel",
        lambda **keywords: routing.KernelRouting(3, **keywords),
        _kernel,
        weights={**dict.fromkeys(_OF_EACH_PARENT, (4,)), "mixing": (3,), "log_scales": (3,)},
        per_parent=_OF_EACH_PARENT,
        share="any",
        iterations=(1, 3),
        takes_activations=True,
    ),
    RoutingGolden(
        "kernel_spectral",
        lambda **keywords: routing.KernelRouting(2, "spectral", **keywords),
        _kernel,
        weights={
            **dict.fromkeys(_OF_EACH_PARENT, (4,)),
            "mixing": (2,),
            "log_bandwidths": (2, 5),
            "frequencies": (2, 5),
        },
        per_parent=_OF_EACH_PARENT,
        share="any",
        iterations=(1, 3),
        takes_activations=True,
    ),
    RoutingGolden(
        "lstm",
        lambda **keywords: routing.LSTMRouting(3, (4,), (6,), **keywords),
        _lstm("paper"),
        weights=_LSTM_WEIGHTS,
        per_parent=(),
        share="any",
        iterations=(1, 3),
        takes_activations=True,
    ),
    RoutingGolden(
        "lstm_code",
        lambda **keywords: routing.LSTMRouting(3, (4,), (6,), "code", **keywords),
        _lstm("code"),
        weights=_LSTM_WEIGHTS,
        per_parent=(),
        share="any",
        iterations=(1, 3),
        takes_activations=True,
    ),
]


@dataclasses.dataclass(frozen=True, eq=False)
class LayerGolden:
    """A layer.

    where:
      create: makes the layer; takes Keras's own keywords.
      inputs: shape of each input without the batch; a pair of shapes is capsules: poses and activations.
      output: shape of the output, or such a pair.
      weights: shape of each weight, by its path below the layer.
      float32: whether the output is float32 under every dtype policy; otherwise it follows the policy.
    """

    name: str
    create: Callable
    inputs: tuple
    output: tuple
    weights: dict = dataclasses.field(default_factory=dict)
    float32: bool = True

    def arrays(self, batch=3):
        """One array `[batch, ...]` per input, or a pair of them."""
        made = []
        for i, shape in enumerate(self.inputs):
            shapes = (shape,) if isinstance(shape[0], int) else shape
            numbers = _numbers(f"{self.name}{i}", *((batch, *part) for part in shapes))
            made.append(numbers[0] if len(numbers) == 1 else (numbers[0], _logistic(numbers[1])))
        return made

    def symbols(self):
        """The same as Keras inputs of any batch."""
        return keras.tree.map_structure(lambda array: keras.Input(array.shape[1:]), self.arrays())


_CAPSULES_OF_3_TYPES = ((5, 6, 3, 4, 4), (5, 6, 3))


def _set_attention(lookers, seen, prefix=""):
    """The weights of a `SetAttention` of 8 units."""
    inputs = {"queries": lookers, "keys": seen, "values": seen, "output": 8}
    weights = {f"{prefix}{name}/kernel": (width, 8) for name, width in inputs.items()}
    weights |= {f"{prefix}{name}/bias": (8,) for name in inputs if name != "keys"}
    return weights | {f"{prefix}norm{i}/{name}": (8,) for i in (1, 2) for name in ("gamma", "beta")}


def _present_attention(lookers, seen, units, prefix=""):
    """The weights of a `PresentAttention`."""
    inputs = {"queries": lookers, "keys": seen, "values": seen, "output": units}
    weights = {f"{prefix}{name}/kernel": (width, units) for name, width in inputs.items()}
    return weights | {f"{prefix}{name}/bias": (units,) for name in inputs if name != "keys"}


def _batch_normalised(types, learned):
    """The weights of capsules' batch normalisation, with or without those that are learned."""
    names = (
        ("gamma", "beta", "moving_mean", "moving_variance") if learned else ("moving_mean", "moving_variance")
    )
    return {f"{of}_normalisation/{name}": (types,) for of in ("pose", "activation") for name in names}


_BETAS_OF_2_TYPES = {"routing/beta_u": (2,), "routing/beta_a": (2,)}

LAYERS = [
    LayerGolden(
        "primary",
        lambda **keywords: layers.PrimaryCapsules(3, 4, 3, strides=2, scale=0.5, **keywords),
        inputs=((7, 9, 2),),
        output=(3, 4, 3, 4),
        weights={"kernel": (3, 3, 2, 12), "bias": (3, 4)},
    ),
    LayerGolden(
        "primary_same",
        lambda **keywords: layers.PrimaryCapsules(2, 3, 5, strides=2, padding="same", **keywords),
        inputs=((7, 8, 2),),
        output=(4, 4, 2, 3),
        weights={"kernel": (5, 5, 2, 6), "bias": (2, 3)},
    ),
    LayerGolden(
        "primary_depthwise",
        lambda **keywords: layers.DepthwisePrimaryCapsules(2, 3, 3, strides=2, **keywords),
        inputs=((7, 9, 6),),
        output=(3, 4, 2, 3),
        weights={"kernel": (3, 3, 6, 1), "bias": (2, 3)},
    ),
    LayerGolden(
        "unmasked",
        lambda **keywords: layers.DenseCapsules(4, 5, routing.DynamicRouting(name="routing"), **keywords),
        inputs=((2, 3, 2, 6),),
        output=(4, 5),
        weights={"kernel": (12, 6, 4, 5), "routing/bias": (4, 5)},
    ),
    LayerGolden(
        "latent",
        lambda **keywords: layers.LatentCapsules(4, 5, routing.DynamicRouting(name="routing"), **keywords),
        inputs=((2, 3, 2, 6),),
        output=((4, 5), (4,)),
        weights={"kernel": (12, 6, 4, 5), "routing/bias": (4, 5)},
    ),
    LayerGolden(
        "sparse_mask",
        layers.SparseMask,
        inputs=((5,),),
        output=(5,),
        weights={"boosts": (5,), "frequencies": (5,), "batches": ()},
    ),
    LayerGolden("length", layers.Length, inputs=((5, 4),), output=(5,)),
    LayerGolden(
        "most_active", lambda **keywords: layers.MostActive(2, **keywords), inputs=((5,),), output=(2, 5)
    ),
    LayerGolden("mask", layers.MaskCapsules, inputs=((5, 4), (2, 5)), output=(2, 20), float32=False),
    LayerGolden(
        "decoder",
        lambda **keywords: layers.Decoder((4, 3, 2), hidden=(6, 7), **keywords),
        inputs=((2, 10),),
        output=(2, 4, 3, 2),
        weights={
            "hidden1/kernel": (10, 6),
            "hidden1/bias": (6,),
            "hidden2/kernel": (6, 7),
            "hidden2/bias": (7,),
            "pixels/kernel": (7, 24),
            "pixels/bias": (24,),
        },
    ),
    LayerGolden(
        "matrix_primary",
        lambda **keywords: layers.MatrixPrimaryCapsules(3, **keywords),
        inputs=((5, 6, 7),),
        output=_CAPSULES_OF_3_TYPES,
        weights={"pose_kernel": (7, 48), "activation_kernel": (7, 3)},
    ),
    LayerGolden(
        "conv",
        lambda **keywords: layers.ConvCapsules(2, 3, 2, routing.EMRouting(name="routing"), **keywords),
        inputs=(_CAPSULES_OF_3_TYPES,),
        output=((2, 2, 2, 4, 4), (2, 2, 2)),
        weights={"kernel": (3, 3, 3, 4, 2, 4), "routing/beta_u": (2,), "routing/beta_a": (2,)},
    ),
    LayerGolden(
        "shared_class",
        lambda **keywords: layers.SharedClassCapsules(2, routing.EMRouting(name="routing"), **keywords),
        inputs=(_CAPSULES_OF_3_TYPES,),
        output=((2, 4, 4), (2,)),
        weights={"kernel": (3, 4, 2, 4), "routing/beta_u": (2,), "routing/beta_a": (2,)},
    ),
    LayerGolden(
        "affine_primary",
        lambda **keywords: layers.AffinePrimaryCapsules(3, normalise=True, **keywords),
        inputs=((5, 6, 7),),
        output=_CAPSULES_OF_3_TYPES,
        weights={
            "pose_kernel": (7, 48),
            "pose_bias": (48,),
            "activation_kernel": (7, 3),
            "activation_bias": (3,),
        },
    ),
    LayerGolden(
        "normalised_conv",
        lambda **keywords: layers.NormalisedConvCapsules(
            2, 3, 2, routing.KernelRouting(2, name="routing"), **keywords
        ),
        inputs=(_CAPSULES_OF_3_TYPES,),
        output=((2, 2, 2, 4, 4), (2, 2, 2)),
        weights={
            "kernel": (3, 3, 3, 4, 2, 4),
            **{f"routing/{name}": (2,) for name in (*_OF_EACH_PARENT, "mixing", "log_scales")},
        },
    ),
    LayerGolden(
        "normalised_class",
        lambda **keywords: layers.NormalisedClassCapsules(
            2, routing.KernelRouting(2, name="routing"), **keywords
        ),
        inputs=(_CAPSULES_OF_3_TYPES,),
        output=((2, 4, 4), (2,)),
        weights={
            "kernel": (5, 6, 3, 4, 2, 4),
            **{f"routing/{name}": (2,) for name in (*_OF_EACH_PARENT, "mixing", "log_scales")},
        },
    ),
    LayerGolden(
        "normalised_class_em",
        lambda **keywords: layers.NormalisedClassCapsules(2, routing.EMRouting(name="routing"), **keywords),
        inputs=(_CAPSULES_OF_3_TYPES,),
        output=((2, 4, 4), (2,)),
        weights={"kernel": (5, 6, 3, 4, 2, 4), "routing/beta_u": (2,), "routing/beta_a": (2,)},
    ),
    LayerGolden(
        "batch_normalised_primary",
        lambda **keywords: layers.BatchNormalisedPrimaryCapsules(3, **keywords),
        inputs=((5, 6, 7),),
        output=_CAPSULES_OF_3_TYPES,
        weights={"pose_kernel": (7, 48), "activation_kernel": (7, 3), **_batch_normalised(3, True)},
    ),
    LayerGolden(
        "batch_normalised_conv",
        lambda **keywords: layers.BatchNormalisedConvCapsules(
            2, 3, 2, routing.VariationalBayesRouting(logits=True, name="routing"), **keywords
        ),
        inputs=(_CAPSULES_OF_3_TYPES,),
        output=((2, 2, 2, 4, 4), (2, 2, 2)),
        weights={"kernel": (3, 3, 3, 4, 2, 4), **_BETAS_OF_2_TYPES, **_batch_normalised(2, False)},
    ),
    LayerGolden(
        "batch_normalised_class",
        lambda **keywords: layers.BatchNormalisedClassCapsules(
            2, routing.VariationalBayesRouting(logits=True, name="routing"), **keywords
        ),
        inputs=(_CAPSULES_OF_3_TYPES,),
        output=((2, 4, 4), (2,)),
        weights={"kernel": (3, 4, 2, 4), **_BETAS_OF_2_TYPES, **_batch_normalised(2, False)},
    ),
    LayerGolden(
        "top_down",
        lambda **keywords: layers.TopDownCapsules(
            routing.AttentionRouting(name="attention"), noise=0.1, **keywords
        ),
        inputs=((3, 4), (5, 6)),
        output=((5, 6), (5, 3)),
        weights={
            "kernel": (3, 4, 5, 6),
            "bias": (3, 5, 6),
            "log_scales": (3, 5),
            "log_concentrations": (3, 5),
            "attention/query": (5, 6),
        },
    ),
    LayerGolden(
        "top_down_density",
        lambda **keywords: layers.TopDownCapsules(
            routing.AttentionRouting(name="attention"), noise=0.1, rule="density", **keywords
        ),
        inputs=((3, 4), (5, 6)),
        output=((5, 6), (5, 3)),
        weights={
            "kernel": (3, 4, 5, 6),
            "bias": (3, 5, 6),
            "log_scales": (3, 5),
            "log_concentrations": (3, 5),
            "attention/query": (5, 6),
        },
    ),
    LayerGolden(
        "gaussian_capsules",
        lambda **keywords: layers.GaussianCapsules(3, 4, **keywords),
        inputs=((7,),),
        output=((3, 4), (3, 4)),
        weights={"dense/kernel": (7, 24), "dense/bias": (24,)},
    ),
    LayerGolden(
        "patches", lambda **keywords: layers.Patches(2, **keywords), inputs=((4, 6, 3),), output=(6, 12)
    ),
    LayerGolden(
        "self_routed",
        lambda **keywords: layers.SelfRoutedClassCapsules(4, routing.SelfRouting(name="routing"), **keywords),
        inputs=(((5, 6, 3, 7), (5, 6, 3)),),
        output=(4,),
        weights={"kernel": (90, 7, 4), "routing/bias": (4, 90)},
    ),
    LayerGolden(
        "concurrent",
        lambda **keywords: layers.ConcurrentCapsules(
            (2,), ((3, 2),), 4, routing.InvertedAttentionRouting(2, name="routing"), **keywords
        ),
        inputs=((5, 6, 3, 4, 4),),
        output=(4, 4, 4),
        weights={
            "conv_capsules1/kernel": (27, 4, 2, 4),
            "class_capsules/kernel": (8, 4, 4, 4),
            **{
                f"{level}/routing/{name}": (16,)
                for level in ("conv_capsules1", "class_capsules")
                for name in ("scale", "offset")
            },
        },
    ),
    LayerGolden(
        "heinsen",
        lambda **keywords: layers.HeinsenCapsules(4, routing.HeinsenRouting(name="routing"), **keywords),
        inputs=(((5, 4, 4), (5,)),),
        output=((4, 4, 4), (4,)),
        weights={
            "kernel": (5, 4, 4, 4),
            "bias": (5, 4, 4, 4),
            "routing/beta_use": (4, 5),
            "routing/beta_ignore": (4, 5),
        },
    ),
    LayerGolden(
        "heinsen_shared",
        lambda **keywords: layers.HeinsenCapsules(
            2, routing.HeinsenRouting(shared_betas=True, name="routing"), **keywords
        ),
        inputs=(_CAPSULES_OF_3_TYPES,),
        output=((2, 4, 4), (2,)),
        weights={
            "kernel": (2, 4, 4),
            "bias": (2, 4, 4),
            "routing/beta_use": (2,),
            "routing/beta_ignore": (2,),
        },
    ),
    LayerGolden(
        "coordinate_channels",
        layers.CoordinateChannels,
        inputs=((5, 6, 2),),
        output=(5, 6, 4),
        float32=False,
    ),
    LayerGolden(
        "attention_pooling",
        lambda **keywords: layers.AttentionPooling(3, 4, **keywords),
        inputs=((5, 6, 7),),
        output=(3, 4),
        weights={"places": (5, 6, 7), "kernel": (7, 12), "attention": (7, 3), "bias": (3, 4)},
    ),
    LayerGolden(
        "set_attention",
        lambda **keywords: layers.SetAttention(8, 2, **keywords),
        inputs=((3, 6), (4, 5)),
        output=(3, 8),
        weights=_set_attention(6, 5),
        float32=False,
    ),
    LayerGolden(
        "induced_set_attention",
        lambda **keywords: layers.InducedSetAttention(8, 2, 3, **keywords),
        inputs=((4, 6),),
        output=(4, 8),
        weights={
            "points": (3, 8),
            **_set_attention(8, 6, "gather/"),
            **_set_attention(6, 8, "spread/"),
        },
        float32=False,
    ),
    LayerGolden(
        "seed_pooling",
        lambda **keywords: layers.SeedPooling(2, 8, 2, **keywords),
        inputs=((4, 6),),
        output=(2, 8),
        weights={"seeds": (2, 8), **_set_attention(8, 6, "attention/")},
        float32=False,
    ),
    LayerGolden(
        "named", layers.Named, inputs=((4, 6),), output=(4, 6), weights={"names": (4, 6)}, float32=False
    ),
    LayerGolden(
        "sampled_capsules",
        lambda **keywords: layers.SampledCapsules(0.5, **keywords),
        inputs=((4, 2, 3), (4,)),
        output=((4, 2, 3), (4,), (4,), (4,)),
    ),
    LayerGolden(
        "sampled_capsules_gaussian",
        layers.SampledCapsules,
        inputs=((4, 2, 3), (4,), (4, 2, 3)),
        output=((4, 2, 3), (4,), (4,), (4,)),
    ),
    LayerGolden(
        "parts_from_objects",
        lambda **keywords: layers.PartsFromObjects(2, 4, **keywords),
        inputs=((2, 2, 3), (2,), (4, 2, 3), (4,)),
        output=((4,), (4, 3)),
        weights={
            "affinities": (4, 2),
            "part_logits": (4, 3),
            "common_offsets": (4, 2, 3),
            "offsets": (4, 2, 2, 3),
            "common_widths": (4, 2, 3),
            "widths": (4, 2, 2, 3),
        },
    ),
    LayerGolden(
        "divergence",
        layers.Divergence,
        inputs=((2, 2, 3), (2,), (2,), (4,), (4,)),
        output=(6,),
    ),
    LayerGolden("gaussian_code", layers.GaussianCode, inputs=((5,), (5,)), output=((5,), (5,), (5,))),
    LayerGolden(
        "template_renderer",
        lambda **keywords: layers.TemplateRenderer(3, (7, 8, 2), 4, **keywords),
        inputs=((3, 2, 3), (3,)),
        output=(7, 8, 2),
        weights={"templates": (3, 4, 4, 2), "alphas": (3, 4, 4, 1)},
    ),
    LayerGolden(
        "part_capsules",
        layers.PartCapsules,
        inputs=((4, 9),),
        output=((4, 2, 3), (4,), (4,), (4, 2)),
    ),
    LayerGolden(
        "part_elements",
        layers.PartElements,
        inputs=((4, 2, 3), (4,), (4, 2), (4, 3, 3, 1)),
        output=((4, 18), (4,)),
    ),
    LayerGolden(
        "present_attention",
        lambda **keywords: layers.PresentAttention(8, **keywords),
        inputs=((3, 6), (4, 5), (4,)),
        output=(3, 8),
        weights=_present_attention(6, 5, 8),
        float32=False,
    ),
    LayerGolden(
        "present_set_attention",
        layers.PresentSetAttention,
        inputs=((4, 6), (4,)),
        output=(4, 6),
        weights={
            **_present_attention(6, 6, 6, "attention/"),
            "hidden/kernel": (6, 12),
            "hidden/bias": (12,),
            "output/kernel": (12, 6),
            "output/bias": (6,),
            **{f"norm{i}/{name}": (6,) for i in (1, 2) for name in ("gamma", "beta")},
        },
        float32=False,
    ),
    LayerGolden(
        "present_seed_pooling",
        lambda **keywords: layers.PresentSeedPooling(2, 8, **keywords),
        inputs=((4, 6), (4,)),
        output=(2, 8),
        weights={"seeds": (2, 8), **_present_attention(8, 6, 8, "attention/")},
        float32=False,
    ),
    LayerGolden(
        "separate_dense",
        lambda **keywords: layers.SeparateDense(5, "relu", **keywords),
        inputs=((3, 4),),
        output=(3, 5),
        weights={"kernel": (3, 4, 5), "bias": (3, 5)},
        float32=False,
    ),
    LayerGolden(
        "object_votes",
        lambda **keywords: layers.ObjectVotes(4, **keywords),
        inputs=((2, 39),),
        output=((2, 2, 3), (2,), (2,), (2, 4, 2, 3), (2, 4), (2, 4), (2, 4, 6)),
        weights={
            "offsets": (2, 4, 6),
            "pose_bias": (2, 6),
            "presence_bias": (2,),
            "vote_bias": (2, 4),
            "width_bias": (2, 4),
        },
    ),
    LayerGolden(
        "vote_mixture",
        layers.VoteMixture,
        inputs=((2, 4, 2, 3), (2, 4), (2, 4), (4, 2, 3), (4,)),
        output=((4,), (4, 3), (2,)),
    ),
    LayerGolden(
        "template_mixture",
        lambda **keywords: layers.TemplateMixture(3, (7, 8, 2), 4, hidden=6, **keywords),
        inputs=((3, 2, 3), (3,), (3, 5), (7, 8, 2)),
        output=((3, 4, 4, 2), (7, 8, 2), (7, 8, 2)),
        weights={
            "templates": (3, 4, 4, 2),
            "alphas": (3, 4, 4, 1),
            "background": (),
            "background_alpha": (),
            "colour_hidden/kernel": (5, 6),
            "colour_hidden/bias": (6,),
            "colour/kernel": (6, 2),
            "colour/bias": (2,),
        },
    ),
]


@dataclasses.dataclass(frozen=True, eq=False)
class ModelGolden:
    """A small network of a registered architecture.

    where:
      architecture: the dataclass that builds it.
      outputs: shape of each output without the batch, by name.
      image_shape, num_classes, labels_per_image: what it is built for.
      learning_rate: with which Adam learns one batch by heart in 200 steps.
      least_loss: of that batch, where no weights can make it zero.
      steps: in so many the batch can be learnt by heart.
      unfelt: ends of the paths of weights that the paper counts and that the loss does not depend on.
    """

    name: str
    architecture: object
    outputs: dict
    image_shape: tuple = (20, 20, 1)
    num_classes: int = 5
    labels_per_image: int = 1
    learning_rate: float = 3e-3
    least_loss: float = 0.0
    steps: int = 200
    unfelt: tuple = ()

    def build(self):
        """The inference model."""
        return self.architecture.build(self.image_shape, self.num_classes, self.labels_per_image)

    def objective(self, model):
        """What it is trained on."""
        return self.architecture.objective(model, self.labels_per_image)

    def batch(self, size=8):
        """A batch as a data set gives it: a bright box per label, its place given by the class."""
        height, width, channels = self.image_shape
        labels = (np.arange(size)[:, None] + np.arange(self.labels_per_image)) % self.num_classes
        sources = np.zeros((size, self.labels_per_image, height, width, channels), "float32")
        for row, image in zip(labels, sources, strict=True):
            for label, source in zip(row, image, strict=True):
                source[2 + 3 * label : 6 + 3 * label, 3 * label : 3 * label + 7] = 0.6 + 0.4 * (label % 2)
        batch = {"images": sources.max(axis=1), "labels": labels}
        return (
            {**batch, "sources": sources} if self.labels_per_image > 1 else {**batch, "labels": labels[:, 0]}
        )


_SMALL = {"channels": 8, "primary_types": 3}
_CAPSULES = {"scores": (5,), "poses": (5, 16)}
_LATENT = {"scores": (6,), "poses": (6, 16), "presence": (6,), "reconstruction": (20, 20, 1)}
_PROBABILISTIC = {
    "scores": (3,),
    "logits": (3,),
    "poses": (3, 2, 3),
    "part_presence": (4,),
    "part_poses": (4, 2, 3),
    "coefficients": (4, 4),
    "reconstruction": (20, 20, 1),
}
_SMALL_SETS = {
    "objects": 3,
    "parts": 4,
    "channels": 4,
    "units": 8,
    "heads": 2,
    "points": 3,
    "blocks": 1,
    "encoding": 5,
}
_CONSENSUS = {**_SMALL, "conv1_types": 4, "conv2_types": 4}
# The paper's temperature and margin need far more than 200 steps of so small a network.
_EM = {
    "channels": 8,
    "primary_types": 3,
    "conv1_types": 4,
    "conv2_types": 4,
    "num_iterations": 2,
    "final_lambda": 0.3,
    "loss": "cross_entropy",
}

MODELS = [
    ModelGolden(
        "dynamic", models.DynamicCapsNet(**_SMALL), outputs={**_CAPSULES, "reconstruction": (20, 20, 1)}
    ),
    ModelGolden(
        "dynamic_two_labels",
        models.DynamicCapsNet(**_SMALL),
        outputs={**_CAPSULES, "reconstruction": (2, 20, 20, 1)},
        labels_per_image=2,
    ),
    ModelGolden(
        "dynamic_leaky_same",
        models.DynamicCapsNet(**_SMALL, routing="leaky", padding="same", decoder=False),
        outputs=_CAPSULES,
        image_shape=(12, 10, 3),
    ),
    ModelGolden(
        "dynamic_no_routing",
        models.DynamicCapsNet(**_SMALL, routing="sum", class_bias=False, loss_scaling="official"),
        outputs={**_CAPSULES, "reconstruction": (20, 20, 1)},
    ),
    ModelGolden(
        "dynamic_mean", models.DynamicCapsNet(**_SMALL, routing="mean", decoder=False), outputs=_CAPSULES
    ),
    ModelGolden(
        "efficient",
        models.EfficientCapsNet(
            channels=(4, 6),
            kernel_sizes=(5, 3),
            strides=(1, 2),
            primary_dim=3,
            primary_kernel=7,
            class_dim=16,
        ),
        outputs={**_CAPSULES, "reconstruction": (20, 20, 1)},
    ),
    ModelGolden(
        "efficient_instance",
        models.EfficientCapsNet(
            channels=(4, 6),
            kernel_sizes=(5, 3),
            strides=(1, 2),
            normalisation="instance",
            primary_dim=3,
            primary_kernel=5,
            primary_strides=2,
            class_dim=16,
            decoder=False,
        ),
        outputs=_CAPSULES,
    ),
    ModelGolden(
        "self_routing",
        models.SelfRoutingCapsNet(channels=(4, 6), strides=(2, 2), primary_types=3, primary_dim=4),
        outputs={"scores": (5,)},
        learning_rate=1e-2,
        # Batch normalisation takes the mean of what they are added to.
        unfelt=("conv1/bias", "conv2/bias", "activations/bias"),
    ),
    ModelGolden(
        "heinsen",
        models.HeinsenCapsNet(channels=(8, 8), strides=(2, 2), types=8, num_iterations=2),
        outputs={"scores": (5,), "poses": (5, 4, 4)},
        learning_rate=1e-2,
    ),
    ModelGolden(
        "inverted_attention",
        models.InvertedAttentionCapsNet(channels=(6, 8), blocks=(1, 1), primary_types=3, conv_types=(5,)),
        outputs={"scores": (5,), "poses": (5, 4, 4)},
        learning_rate=1e-2,
        # One number, added to the logits of all classes, which the softmax of the loss does not feel.
        unfelt=("class_logits/bias",),
    ),
    ModelGolden(
        "matrix_em",
        models.MatrixCapsNet(**_EM),
        outputs={"scores": (5,), "poses": (5, 4, 4)},
        learning_rate=1e-2,
    ),
    ModelGolden(
        "matrix_em_normalised",
        models.MatrixCapsNet(**_EM, normalise=True),
        outputs={"scores": (5,), "poses": (5, 4, 4)},
        learning_rate=1e-2,
    ),
    ModelGolden(
        "variational_bayes",
        models.VariationalBayesCapsNet(**_CONSENSUS, num_iterations=2),
        outputs={"scores": (5,), "poses": (5, 4, 4)},
        learning_rate=1e-2,
        # Scores are the logistic function of normalised labels; classes of a quarter or an eighth of the batch have
        # 0.850 or 0.934 where they are right and 0.360 or 0.407 elsewhere.
        least_loss=1.2386,
        # Added to logits of which normalisation takes the mean.
        unfelt=("routing/beta_u", "routing/beta_a"),
    ),
    ModelGolden(
        "kernel",
        models.KernelCapsNet(**_CONSENSUS, components=(2, 2, 3)),
        outputs={"scores": (5,), "poses": (5, 4, 4)},
        learning_rate=1e-2,
    ),
    ModelGolden(
        "lstm",
        models.LSTMCapsNet(**_CONSENSUS, units=6, num_iterations=2),
        outputs={"scores": (5,), "poses": (5, 4, 4)},
        # The last bias of each: a softmax, over children or, in the loss, over classes, does not feel a number added to
        # all its logits.
        unfelt=(
            "conv_capsules1/routing/compatibility_bias1",
            "conv_capsules2/routing/compatibility_bias3",
            "class_capsules/routing/compatibility_bias3",
            "class_capsules/routing/activation_bias3",
        ),
    ),
    ModelGolden(
        "consensus_em",
        models.ConsensusEMNet(**_CONSENSUS, num_iterations=2, final_lambda=0.3),
        outputs={"scores": (5,), "poses": (5, 4, 4)},
        learning_rate=1e-2,
    ),
    ModelGolden(
        "predictive_coding",
        models.PredictiveCodingCapsNet(**_SMALL),
        outputs={**_CAPSULES, "reconstruction": (20, 20, 1)},
    ),
    ModelGolden(
        "predictive_coding_hidden",
        models.PredictiveCodingCapsNet(**_SMALL, hidden_capsules=6, decoder=False),
        outputs=_CAPSULES,
    ),
    ModelGolden(
        "attention",
        models.AttentionCapsNet(objects=3, object_dim=4, channels=4, hidden=16),
        outputs={
            "scores": (3,),
            "poses": (3, 4),
            "coefficients": (25, 3),
            "reconstruction": (20, 20, 1),
        },
    ),
    ModelGolden("sparse", models.SparseCapsNet(**_SMALL, latent_capsules=6), outputs=_LATENT),
    ModelGolden("unmasked", models.UnmaskedCapsNet(**_SMALL, latent_capsules=6), outputs=_LATENT),
    ModelGolden(
        "cnn",
        models.ConvNet(channels=(4, 6), hidden=16, dropout=0.1),
        outputs={"scores": (5,), "logits": (5,)},
    ),
    ModelGolden(
        "probabilistic",
        models.ProbabilisticCapsNet(**_SMALL_SETS),
        outputs=_PROBABILISTIC,
        learning_rate=1.5e-2,
    ),
    ModelGolden(
        "probabilistic_gaussian",
        models.ProbabilisticCapsNet(**_SMALL_SETS, posterior="gaussian"),
        outputs=_PROBABILISTIC,
        learning_rate=2e-2,
        steps=400,
    ),
    ModelGolden(
        "scae",
        models.StackedCapsuleAutoencoder(**STACKED, classes=5),
        outputs={
            "presence": (3,),
            "logits": (3,),
            "explained": (3,),
            "poses": (3, 2, 3),
            "part_presence": (4,),
            "part_poses": (4, 2, 3),
            "coefficients": (4, 4),
            "reconstruction": (28, 28, 1),
        },
        image_shape=(28, 28, 1),
        learning_rate=1e-2,
        # Templates find their places late.
        steps=800,
    ),
    ModelGolden(
        "vae",
        models.VariationalAutoencoder(latents=4, hidden=16),
        outputs={"code": (4, 2), "reconstruction": (20, 20, 1)},
        learning_rate=1e-2,
    ),
]

# One network of each architecture, the first in the list.
ARCHITECTURES = list({type(golden.architecture): golden for golden in reversed(MODELS)}.values())

# The trainable parameters of each preset. Routing of the LSTM presets, by hand: three cells of 34 x 32 + 8 x 32 + 32,
# 2 x 9 in the networks of the first layer, 2 x (161 + 321) in those of the others: 5,110 beside 88,968 of the net.
PRESETS = {
    "attention_mnist": 1_323_332,
    "cnn_coil20": 3_284_884,
    # Beside smallNORB's: 5 x 5 x 32 of a third channel, and 1,024 + 1 for each of three more classes.
    "cnn_eth80": 4_257_224,
    "cnn_smallnorb": 4_253_349,
    "unmasked_mnist": 9_149_712,
    "unmasked_mnist_expanded": 17_064_000,
    # By hand: convolutions 5,248 and 331,840, matrices 1,152 x 8 x 256 and 256, decoder 2,296,896.
    "unmasked_mnist_expanded_small": 4_993_536,
    "dynamic_fashion_mnist": 8_215_728,
    "dynamic_mnist": 8_215_728,
    "dynamic_mnist_expanded": 13_475_808,
    "dynamic_mnist_sum": 8_215_568,
    "dynamic_multimnist": 11_361_968,
    # By hand: conv1 41,728, primary 5,308,672, classes 2,048 children x 8 x 5 x 16 + 80.
    "dynamic_smallnorb": 6_661_200,
    # 161,824 as published, and the decoder's 1,411,344.
    "efficient_mnist": 1_573_168,
    "efficient_smallnorb": 151_664,
    "heinsen_smallnorb": 271_688,
    "inverted_attention_cifar10": 1_828_817,
    # By hand: stem 352, blocks 18,560, 57,728 and 73,984, primary 16,384 + 32, capsules 2 (36,864 + 32) and
    # 40,960 + 32, logits 17.
    "inverted_attention_fashion_mnist": 281_841,
    "inverted_attention_mnist": 281_841,
    # Another camera is 288 more; classes see 400 capsules and are five: 32,000.
    "inverted_attention_smallnorb": 273_169,
    "kernel_eth80": 102_132,
    "kernel_mnist": 89_214,
    "kernel_smallnorb": 88_229,
    "consensus_em_mnist": 89_052,
    "consensus_em_smallnorb": 130_322,
    "lstm_eth80": 107_006,
    "lstm_mnist": 94_078,
    "lstm_smallnorb": 93_118,
    "matrix_em_coil20": 70_888,
    # Beside smallNORB's: 5 x 5 x 64 of a third channel, and 16 matrices and two betas for each of three more classes.
    "matrix_em_eth80": 70_992,
    "matrix_em_mnist": 68_308,
    # By hand: without the convolution's 64 biases, with a scale and a shift for each of its 64 channels and of the 8
    # types of primary poses and of activations.
    "matrix_em_mnist_normalised": 68_404,
    "matrix_em_smallnorb": 68_618,
    "matrix_em_smallnorb_normalised": 68_714,
    "probabilistic_mnist": 675_111,
    "predictive_coding_mnist": 8_215_568,
    # By hand: convolutions 1,280 and 3 x 147,584, places 512, numbers of parts 128 x 24 x 24 + 24 x 23, templates and
    # alphas 5,808, colours 544 + 33, background 2; embedding 2,320, sets 3 x 2,208, encoding 4,352, seeds 6,144 + 4 x
    # 256 x 256 + 3 x 256; objects 24 x (256 x 128 + 128 + 128 x 32 + 32 + 32 x 128 + 128 + 128 x 199), static offsets
    # 3,456 and biases 24 x (6 + 1 + 24 + 24). tests/models/test_scae.py counts the author's.
    "scae_mnist": 2_413_619,
    "self_routing_smallnorb": 814_960,
    "sparse_mnist": 9_149_712,
    "sparse_mnist_expanded": 17_064_000,
    "sparse_mnist_expanded_small": 4_993_536,
    # By hand: convolutions 320 and 3 x 9,248, hidden units 1,568 x 128 and 128, the code 2 x 8,256, decoder 109,456.
    "vae_mnist": 354_864,
    # By hand: smallNORB's 68,714 without 5 x 5 x 64 of a second channel, with 16 matrices and two betas for each of
    # five more classes.
    "variational_bayes_mnist": 68_404,
    "variational_bayes_smallnorb": 68_714,
}
