"""Self-routing: every child decides by itself how it is shared, in a single pass."""

import keras
from keras import ops

from capszoo.routing.one_pass import _OnePass

# Under sums of activations: children that are all silent have parents that are silent, not none.
ACTIVATION_FLOOR = 1e-9


@keras.saving.register_keras_serializable(package="capszoo")
class SelfRouting(_OnePass):
    """Shares each child by logits that it gives itself, whatever other children say; nothing is iterated.

        c_ij = exp(l_ij + b_ij) / sum_k exp(l_ik + b_ik)     # softmax over parents
        a_j = sum_i c_ij * a_i / sum_i a_i
        M_j = sum_i c_ij * a_i * V_ij / sum_i c_ij * a_i

    where:
      V_ij: `votes[B, ..., I, O, D]`; l_ij, the last number of each, is a logit: a linear function of the child's pose,
        which the layer makes together with the vote. D is 1 where parents have no poses.
      a_i: `activations[B, ..., I]`, in [0, 1].
      c_ij: coefficients `[B, ..., I, O]`, in [0, 1]; those of a child sum to one over its parents.
      b_ij: the weight `bias[O, I]`, at first zero.
      M_j: poses `[B, ..., O, D]`; a_j: activations `[B, ..., O]`, in [0, 1]; they sum to one over the parents.

    Errors: `ValueError` for votes of rank below 4 and for missing activations.
    Source: Hahn, Pyeon and Kim 2019, "Self-routing capsule networks", on self-routing.
    Differs from the paper: 1e-9 is added to the sums that are divided by.
    """

    pair_weight = "bias"

    def routed(self, votes, activations, num_iterations, return_history):
        self.require_activations(activations, votes.shape[:-2])
        return super().routed(votes, activations, num_iterations, return_history)

    def start(self, votes, activations):
        # [O, I] -> [I, O], beside logits [..., I, O]
        return {"coefficients": ops.softmax(votes[..., -1] + ops.transpose(self.bias), axis=-1)}

    def finish(self, state, votes, activations):
        share = state["coefficients"] * ops.expand_dims(activations, -1)
        mass = ops.sum(share, axis=-2)
        # [..., I, O], [..., I, O, D] -> [..., O, D]
        total = ops.sum(ops.expand_dims(share, -1) * votes, axis=-3)
        poses = total / (ops.expand_dims(mass, -1) + ACTIVATION_FLOOR)
        return poses, mass / (ops.sum(activations, axis=-1, keepdims=True) + ACTIVATION_FLOOR)
