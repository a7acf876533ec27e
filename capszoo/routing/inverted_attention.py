"""Inverted dot-product attention: children attend to parents, and parents compete for the attention."""

import math

import keras
from keras import ops

from capszoo.routing.by_image import row_times, times_column
from capszoo.routing.by_position import _RoutingByPosition

# Under the variance of a pose: the framework's of the authors' code.
EPSILON = 1e-5


@keras.saving.register_keras_serializable(package="capszoo")
class InvertedAttentionRouting(_RoutingByPosition):
    """Shares each child among the parents that agree with its votes; parents are normalised sums.

        c_ij = 1 / O,  p_j = LayerNorm(sum_i c_ij V_ij)                # iteration 0
        c_ij = exp(l_ij) / sum_k exp(l_ik),  l_ij = sum_d p_jd V_ijd / sqrt(D)
        p_j = LayerNorm(sum_i c_ij V_ij)
        LayerNorm(x)_d = scale_d (x_d - mean(x)) / sqrt(variance(x) + 1e-5) + offset_d

    where:
      V_ij: `votes[B, ..., I, O, D]`.
      c_ij: coefficients `[B, ..., I, O]`, in [0, 1]; those of a child sum to one over the parents at one position.
      p_j: parent poses `[B, ..., O, D]`. They have no activations: all parents are present, and `[B, ..., O]` ones are
        returned in their place.
      scale, offset: `[D]`, at first one and zero, the same for all parents.
      num_iterations: how often coefficients are computed, the uniform ones included; the paper's best is 2.

    The children's activations, where a layer has them, make no difference.

    Errors: `ValueError` for votes of rank below 4 and for counts below one.
    Source: Tsai, Srivastava, Goh and Salakhutdinov 2020, "Capsules with inverted dot-product attention routing",
    Procedure 1.
    Differs from the authors' code: that divides coefficients once more by their sum over parents plus 1e-10, which is
    one.
    """

    needs_activations = False

    def build(self, votes_shape):
        super().build(votes_shape)
        for name, initializer in (("scale", "ones"), ("offset", "zeros")):
            weight = self.add_weight(name=name, shape=(votes_shape[-1],), initializer=initializer)
            setattr(self, name, weight)

    def start(self, votes, activations):
        return self.start_of_sums(ops.sum(votes, axis=2), votes.shape[2])

    def start_of_sums(self, sums, children):
        """The state of iteration 0, whose uniform coefficients need no votes but their sums `[N, O, D]` over children.

        where:
          children: I, how many voted for each parent.
        """
        parents = sums.shape[1]
        shape = ops.shape(sums)[0], parents, children
        return {
            "coefficients": ops.full(shape, 1.0 / parents, dtype=sums.dtype),
            "poses": self._normalised(sums / parents),
        }

    def step(self, state, votes, activations, iteration):
        # [N, O, I]
        agreement = times_column(votes, state["poses"] / math.sqrt(votes.shape[3]))
        coefficients = ops.softmax(agreement, axis=1)
        return {
            "coefficients": coefficients,
            "poses": self._normalised(row_times(coefficients, votes)),
        }

    def finish(self, state, votes, activations):
        return state["poses"], ops.ones_like(state["poses"][..., 0])

    def _normalised(self, total):
        centred = total - ops.mean(total, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        return centred * ops.rsqrt(variance + EPSILON) * self.scale + self.offset
