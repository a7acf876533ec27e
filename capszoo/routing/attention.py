"""Attention of parts over the predictions of their possible parents: routing from the top down."""

import keras
from keras import ops

from capszoo.routing.base import Routing


@keras.saving.register_keras_serializable(package="capszoo")
class AttentionRouting(Routing):
    """Blends what objects predict of a part, again and again, by how similar each prediction is to the blend.

        b_ji = sum_d v_i[d] * u_ji[d]                        # similarity of part i and the prediction of object j
        c_ji = exp(b_ji) / sum_k exp(b_ki)                   # softmax over objects
        v_i = sum_j c_ji * u_ji                              # equation 6

    The senders of these votes are the objects above, the receivers are the parts below. The more similar a prediction,
    the more of it goes into the blend, and the more similar it is then: in the limit a part has a single parent.

    where:
      u_ji: `votes[B, ..., I, O, D]`, prediction of part i of O by object j of I.
      v_i: poses `[B, ..., O, D]` of the parts; the first v_i is the weight `query[O, D]`, at first zero, so that
        iteration 0 is the mean of the predictions.
      c_ji: coefficients `[B, ..., I, O]`, in [0, 1]; those of a part sum to one over the objects.
      activations: `[B, ..., O]`, the largest coefficient of each part: near 1 where it has a single parent.
      num_iterations: number of softmaxes.
      accumulate: similarities of earlier iterations are added to b_ji, as routing by agreement does.

    Errors: `ValueError` for votes of rank below 4 and for counts below one.
    Source: Kiefer et al. 2022, equation 6; `accumulate` from section 4.1.
    Differs from the paper: it does not say what the first v_i is, and parts have no activations there.
    """

    def __init__(self, num_iterations=3, accumulate=False, **kwargs):
        super().__init__(num_iterations=num_iterations, **kwargs)
        self.accumulate = accumulate

    def build(self, votes_shape):
        if len(votes_shape) < 4:
            raise ValueError(f"votes must be [B, ..., I, O, D]. Received shape: {tuple(votes_shape)}")
        self.parent_count = votes_shape[-2]
        self.query = self.add_weight(name="query", shape=tuple(votes_shape[-2:]), initializer="zeros")

    def start(self, votes, activations):
        return self._attend(votes, ops.convert_to_tensor(self.query), 0.0)

    def step(self, state, votes, activations, iteration):
        return self._attend(votes, ops.expand_dims(state["poses"], -3), state["logits"])

    def finish(self, state, votes, activations):
        return state["poses"], ops.max(state["coefficients"], axis=-2)

    def _attend(self, votes, queries, before):
        logits = ops.sum(votes * queries, axis=-1) + (before if self.accumulate else 0.0)
        coefficients = ops.softmax(logits, axis=-2)
        poses = ops.sum(ops.expand_dims(coefficients, -1) * votes, axis=-3)
        return {"logits": logits, "coefficients": coefficients, "poses": poses}

    def get_config(self):
        return {**super().get_config(), "accumulate": self.accumulate}
