"""Self-attention routing: children that agree with the others count for more, in a single pass."""

import math

import keras
from keras import ops

from capszoo.routing.one_pass import _OnePass
from capszoo.routing.squash import exponential_squash, length


@keras.saving.register_keras_serializable(package="capszoo")
class SelfAttentionRouting(_OnePass):
    """Shares each child by how far its votes agree with those of all children, and adds up; nothing is iterated.

        a_ij = sum_k u_ij . u_kj / sqrt(D)                   # k: all children
        c_ij = exp(a_ij) / sum_h exp(a_ih)                   # softmax over parents
        s_j = sum_i (c_ij + b_ij) u_ij
        v_j = (1 - exp(-||s_j||)) * s_j / ||s_j||

    where:
      u_ij: `votes[B, ..., I, O, D]`.
      c_ij: coefficients `[B, ..., I, O]`, in [0, 1]; those of a child sum to one over its parents.
      b_ij: log priors, the weight `prior[O, I]`, at first zero. They come after the softmax.
      v_j: poses `[B, ..., O, D]`; their lengths, in [0, 1), are the activations.

    The sum over k is that of the votes, so that agreement costs O(I), not O(I^2).
    Errors: `ValueError` for votes of rank below 4.
    Source: Mazzia, Salvetti and Chiaberge 2021, "Efficient-CapsNet", section on self-attention routing;
    the order of softmax and prior from the authors' code.
    """

    pair_weight = "prior"

    def start(self, votes, activations):
        together = ops.sum(votes, axis=-3, keepdims=True)
        agreement = ops.sum(votes * together, axis=-1) / math.sqrt(votes.shape[-1])
        coefficients = ops.softmax(agreement, axis=-1)
        # [O, I] -> [I, O, 1], beside votes [..., I, O, D]
        prior = ops.expand_dims(ops.transpose(self.prior), -1)
        total = ops.sum((ops.expand_dims(coefficients, -1) + prior) * votes, axis=-3)
        return {"coefficients": coefficients, "poses": exponential_squash(total)}

    def finish(self, state, votes, activations):
        return state["poses"], length(state["poses"])
