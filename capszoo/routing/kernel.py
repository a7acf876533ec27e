"""Similarity-learning routing: children are weighted by a learned kernel between their votes and the parent."""

import math

import keras
import numpy as np
from keras import ops

from capszoo.routing.by_image import deviations, times_column
from capszoo.routing.consensus import _ConsensusRouting

# Keeps the logarithm of a child's activation finite.
ACTIVATION_FLOOR = 1e-6
# With these a fresh parent's activation depends on its votes: from about 0.1 without agreement to 0.9 with full. Theta1
# is for a kernel of at most one.
INITIAL = {"theta1": 4.0, "theta2": -2.0, "log_theta3": 0.0}


@keras.saving.register_keras_serializable(package="capszoo")
class KernelRouting(_ConsensusRouting):
    """Makes each parent the centre of a fuzzy cluster of votes, in a similarity that is learned.

        minimise over c_j, mu_j:  - sum_i c_ij * k(mu_j, V_ij)                          # equation 2
            + alpha_j * sum_i c_ij * log(I * c_ij) + beta_j * sum_i c_ij * log(c_ij / a_i)
            with sum_i c_ij = 1                                                         # equation 3
        by, at first with c_ij = 1 / I, and then num_iterations times,
            c_ij = softmax_i( (k(mu_j, V_ij) + beta_j * log(a_i)) / (alpha_j + beta_j) )    # equations 11, 12
            mu_j = sum_i c_ij * V_ij                                                    # equation 4
        a_j = 1 / (1 + exp(-x_j))                                                       # equation 13
        x_j = theta1_j * sum_i c_ij * k(mu_j, V_ij) + theta2_j + theta3_j * sum_i c_ij * log(a_i)
        k(mu, V) = sum_q w_q * exp(-|mu - V|^2 / (2 * sigma_q^2))                       # equation 15

    where:
      V_ij: `votes[B, ..., I, O, D]`; a_i: `activations[B, ..., I]`, in [0, 1].
      c_ij: coefficients `[B, ..., I, O]`, in [0, 1]; they sum to one over the children of each parent.
      mu_j: parent poses `[B, ..., O, D]`; a_j: parent activations `[B, ..., O]`.
      alpha, beta, theta1, theta2, theta3: `[O]`, one per type of parent. alpha, beta and theta3 are positive, because
        their logarithms are learned: weights `log_alpha`, `log_beta`, `log_theta3`.
      w_q = softmax(`mixing[Q]`), sigma_q = exp(`log_scales[Q]`): the `components` (Q) Gaussians of this layer.
      num_iterations: updates of the coefficients after the uniform ones.
      initial values, all positive: `alpha`, `beta`, and `scales`, the smallest and the largest sigma_q, between which a
        single one begins, in the middle of their logarithms. Poses are means and shrink from layer to layer; scales
        from 1/32 to 1 suit all of them.
      kernel: "gaussian" as above, or "spectral", a mixture over frequencies in every dimension of the pose,
        k(mu, V) = sum_q w_q * sum_d exp(-2 pi^2 r_d^2 nu_qd) * cos(2 pi r_d m_qd), r = mu - V, where
        nu = exp(`log_bandwidths[Q, D]`) and m = `frequencies[Q, D]`. It is D where vote and parent agree. Along D the
        layers of matrix capsules list a pose column by column, and so these weights are listed.

    Errors: `ValueError` for another kernel, for components below one, for initial values that are not positive, for
    votes of rank below 4, for missing activations and ones of another shape, and see `Routing`.
    Source: Faria 2019, section 4.1. Equation 13 and the spectral mixture are from the author's code, since the
    paper's symbols are lost in print.
    Differs from the author's code: a_i is floored by 1e-6, not raised by 0.1; similarities in equation 13 are those
    to the final mu_j; the logits x_j of classes have the term of theta3, as those of all other capsules; bandwidths
    are positive. Initial values are ours. The code's alpha of about 12 makes all coefficients nearly equal and its
    theta1 of about 0.1 all activations; and Gaussians of equal scale never part.
    """

    def __init__(
        self,
        components=4,
        kernel="gaussian",
        num_iterations=3,
        alpha=1.0,
        beta=1.0,
        scales=(1 / 32, 1.0),
        **kwargs,
    ):
        super().__init__(num_iterations=num_iterations, **kwargs)
        if kernel not in ("gaussian", "spectral"):
            raise ValueError(f"kernel must be 'gaussian' or 'spectral'. Received: {kernel!r}")
        if components < 1:
            raise ValueError(f"components must be at least 1. Received: {components!r}")
        if min(alpha, beta, *scales) <= 0:
            received = f"{alpha}, {beta}, {tuple(scales)}"
            raise ValueError(f"alpha, beta and both scales must be positive. Received: {received}")
        self.components = components
        self.kernel = kernel
        self.alpha, self.beta, self.scales = alpha, beta, tuple(scales)

    def build(self, votes_shape):
        super().build(votes_shape)
        self.parent_count = votes_shape[-2]
        parents, dimensions = votes_shape[-2:]
        initial = {"log_alpha": math.log(self.alpha), "log_beta": math.log(self.beta), **INITIAL}
        if self.kernel == "spectral":
            initial["theta1"] /= dimensions
        for name, value in initial.items():
            initializer = keras.initializers.Constant(value)
            setattr(self, name, self.add_weight(name=name, shape=(parents,), initializer=initializer))
        self.mixing = self.add_weight(name="mixing", shape=(self.components,), initializer="ones")
        if self.kernel == "gaussian":
            self.log_scales = self.add_weight(
                name="log_scales", shape=(self.components,), initializer=self._spread_scales
            )
        else:
            shape = (self.components, dimensions)
            bandwidth = keras.initializers.Constant(math.log(0.1))
            self.log_bandwidths = self.add_weight(name="log_bandwidths", shape=shape, initializer=bandwidth)
            noise = keras.initializers.TruncatedNormal(stddev=0.1)
            self.frequencies = self.add_weight(name="frequencies", shape=shape, initializer=noise)

    @property
    def order_matters(self):
        return self.kernel == "spectral"

    @property
    def centred(self):
        # Distances as products keep their digits only where votes are small.
        return self.kernel == "gaussian"

    @property
    def fusible(self):
        return self.kernel == "gaussian"

    def fused(self, connections, count):
        """See `Routing.fused`."""
        from capszoo.routing.cpu.similarity_operation import fused_similarity

        route = fused_similarity(connections, count)
        alpha, beta, theta3 = (ops.exp(weight) for weight in (self.log_alpha, self.log_beta, self.log_theta3))
        types = alpha, beta, self.theta1.value, self.theta2.value, theta3
        mixture = ops.softmax(self.mixing), ops.exp(-2.0 * self.log_scales)
        return lambda poses, activations, matrices: route(
            poses, ops.log(activations + ACTIVATION_FLOOR), matrices, types, *mixture
        )

    def finish(self, state, votes, activations):
        coefficients, log_activations = state["coefficients"], _log(activations)
        agreement = ops.sum(coefficients * self._similarity(state, votes), axis=2)
        presence = ops.sum(coefficients * log_activations, axis=2)
        logits = self.theta1 * agreement + self.theta2 + ops.exp(self.log_theta3) * presence
        return state["poses"], ops.sigmoid(logits)

    def shift(self, amount):
        """Adds `amount` to the logits of all activations, equation 13."""
        self.theta2.assign(self.theta2 + amount)

    def _logits(self, state, votes, activations):
        alpha, beta = (ops.expand_dims(ops.exp(weight), 1) for weight in (self.log_alpha, self.log_beta))
        memory = {name: state[name] for name in state.keys() - {"coefficients", "poses"}}
        if not memory:
            memory["prior"] = beta / (alpha + beta) * _log(activations)
            if self.centred:
                memory["squares"] = _squares(votes)
                # As yet poses are the means of their votes.
                return self._gaussians(memory["squares"]) / (alpha + beta) + memory["prior"], memory
        similarity = self._similarity({**state, **memory}, votes)
        return similarity / (alpha + beta) + memory["prior"], memory

    def _similarity(self, state, votes):
        """k(mu_j, V_ij) `[N, O, I]` of the poses of a state and of votes `[N, O, I, D]`."""
        poses = state["poses"]
        if self.kernel == "spectral":
            return self._resonances(deviations(votes, poses))
        # |V - mu|^2 = |V|^2 + |mu|^2 - 2 V . mu: one pass over the votes, where differences take three and a fifth more
        # time in all. Beside a vote that is a thousand times as far away it may be negative by rounding.
        squares = state["squares"] + ops.sum(ops.square(poses), axis=2, keepdims=True)
        return self._gaussians(ops.maximum(squares + times_column(votes, -2.0 * poses), 0.0))

    def _gaussians(self, distances):
        """The mixture, of |mu - V|^2 `[N, O, I]`."""
        precisions = ops.expand_dims(-0.5 * ops.exp(-2.0 * self.log_scales), 1)
        terms = ops.exp(ops.matmul(precisions, ops.reshape(distances, (1, -1))))
        return self._mixed(terms, distances)

    def _mixed(self, terms, like):
        """The mixture `[N, O, I]` of each component `[Q, N * O * I]`."""
        return ops.reshape(ops.matmul(ops.expand_dims(ops.softmax(self.mixing), 0), terms), ops.shape(like))

    def _resonances(self, difference):
        """The same of the spectral mixture, of differences `[N, O, I, D]`."""
        like = difference[..., 0]
        # [N, O, I, D] -> [N * O * I, D]
        difference = ops.reshape(difference, (-1, difference.shape[3]))
        terms = []
        # JAX does not unstack a variable.
        frequencies = ops.unstack(ops.convert_to_tensor(self.frequencies))
        for bandwidth, frequency in zip(ops.unstack(ops.exp(self.log_bandwidths)), frequencies, strict=True):
            envelope = ops.exp(-2.0 * math.pi**2 * bandwidth * ops.square(difference))
            terms.append(ops.sum(envelope * ops.cos(2.0 * math.pi * frequency * difference), axis=1))
        return self._mixed(ops.stack(terms), like)

    def get_config(self):
        return {
            **super().get_config(),
            "components": self.components,
            "kernel": self.kernel,
            "alpha": self.alpha,
            "beta": self.beta,
            "scales": self.scales,
        }

    def _spread_scales(self, shape, dtype=None):
        """Logarithms of evenly spaced ratios from the smallest to the largest scale; of one the middle of them."""
        ends = np.log(self.scales)
        logarithms = np.linspace(*ends, shape[0]) if shape[0] > 1 else [ends.mean()]
        return ops.convert_to_tensor(logarithms, dtype=dtype)


def _log(activations):
    """log(a_i) `[N, 1, I]` of activations `[N, I]`."""
    return ops.log(ops.expand_dims(activations, 1) + ACTIVATION_FLOOR)


def _squares(votes):
    """|V_ij|^2 `[N, O, I]` of votes `[N, O, I, D]`, by a product with ones: LiteRT sums slowly with several threads."""
    depth = votes.shape[3]
    sums = ops.matmul(ops.reshape(ops.square(votes), (-1, depth)), ops.ones((depth, 1), votes.dtype))
    return ops.reshape(sums, ops.shape(votes)[:3])
