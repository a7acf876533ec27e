"""Dynamic routing by agreement, and its limit without iterations."""

import keras
from keras import ops

from capszoo.routing.base import Routing
from capszoo.routing.squash import length, squash


@keras.saving.register_keras_serializable(package="capszoo")
class DynamicRouting(Routing):
    """Sends each child's vote to the parents that agree with it.

        c_ij = exp(b_ij) / sum_k exp(b_ik)                   # equation 3: softmax over parents
        s_j = sum_i c_ij * u_ij + bias_j                     # equation 2
        v_j = squash(s_j)                                    # equation 1
        b_ij <- b_ij + sum_d u_ij[d] * v_j[d]                # Procedure 1, line 7

    where:
      u_ij: `votes[B, ..., I, O, D]`.
      b_ij: routing logits `[B, ..., I, O]`, zero in iteration 0, fresh for every image; not parameters.
      c_ij: coefficients `[B, ..., I, O]`, in [0, 1]; a child's sum to one over its parents. With `leaky=True` the
        softmax has one more logit, always zero, and a child may send what is left nowhere.
      v_j: parent poses `[B, ..., O, D]`; their lengths are the activations `[B, ..., O]`, in [0, 1).
      bias_j: `[O, D]`, initially 0.1, inside the squash; without `use_bias` it is absent.
      num_iterations: number of softmaxes; 1 gives uniform coefficients 1 / O.

    Children's activations are the lengths of their poses and are already in the votes, so none are passed.
    Errors: `ValueError` for votes of rank below 4 and for counts below one.
    Source: Sabour et al. 2017, equations 1-3 and Procedure 1; bias and leaky softmax from the authors' code.
    Differs from the paper: the last update of the logits, which nothing would use, is left out; squash and length
    carry an epsilon.
    """

    def __init__(self, num_iterations=3, leaky=False, use_bias=True, **kwargs):
        super().__init__(num_iterations=num_iterations, **kwargs)
        self.leaky = leaky
        self.use_bias = use_bias

    def build(self, votes_shape):
        if len(votes_shape) < 4:
            raise ValueError(f"votes must be [B, ..., I, O, D]. Received shape: {tuple(votes_shape)}")
        self.bias = None
        if self.use_bias:
            self.parent_count = votes_shape[-2]
            self.bias = self.add_weight(
                name="bias", shape=tuple(votes_shape[-2:]), initializer=keras.initializers.Constant(0.1)
            )

    def start(self, votes, activations):
        parents = votes.shape[-2]
        coefficients = ops.full_like(votes[..., 0], 1.0 / (parents + self.leaky))
        # Uniform coefficients leave the sum: one pass over the votes less than weighting them.
        poses = self._parents(ops.sum(votes, axis=-3) / (parents + self.leaky))
        return {"logits": ops.zeros_like(coefficients), "coefficients": coefficients, "poses": poses}

    def step(self, state, votes, activations, iteration):
        agreement = ops.sum(votes * ops.expand_dims(state["poses"], -3), axis=-1)
        logits = state["logits"] + agreement
        coefficients = _leaky_softmax(logits) if self.leaky else ops.softmax(logits, axis=-1)
        poses = self._parents(ops.sum(ops.expand_dims(coefficients, -1) * votes, axis=-3))
        return {"logits": logits, "coefficients": coefficients, "poses": poses}

    def finish(self, state, votes, activations):
        return state["poses"], length(state["poses"])

    def _parents(self, total):
        return squash(total if self.bias is None else total + self.bias)

    def get_config(self):
        return {**super().get_config(), "leaky": self.leaky, "use_bias": self.use_bias}


def _leaky_softmax(logits):
    """Softmax over parents and one more, silent parent whose logit is zero; its column is dropped."""
    silent = ops.zeros_like(logits[..., :1])
    return ops.softmax(ops.concatenate([silent, logits], axis=-1), axis=-1)[..., 1:]


@keras.saving.register_keras_serializable(package="capszoo")
class UniformRouting(DynamicRouting):
    """No routing: every child counts the same for every parent.

        v_j = squash(scale * sum_i u_ij + bias_j)

    where:
      u_ij: `votes[B, ..., I, O, D]`.
      scale: 1 for `scale="sum"`, 1 / O for `scale="mean"` (one pass of dynamic routing).
      v_j: parent poses `[B, ..., O, D]`; their lengths are the activations.

    The coefficients are `scale` for every child and parent, so with "sum" they do not sum to one.
    Errors: `ValueError` for another `scale` and for votes of rank below 4.
    Source: Kiefer et al. 2022, section 3.1, appendix A ("no routing") and the authors' code for "sum".
    Differs from the paper: bias_j, initially 0.1, which `use_bias=False` leaves out.
    """

    def __init__(self, scale="sum", use_bias=True, **kwargs):
        super().__init__(num_iterations=1, use_bias=use_bias, **kwargs)
        if scale not in ("sum", "mean"):
            raise ValueError(f"scale must be 'sum' or 'mean'. Received: {scale!r}")
        self.scale = scale

    def start(self, votes, activations):
        factor = self._factor(votes.shape[-2])
        poses = self._parents(ops.sum(votes, axis=-3) * factor)
        return {"coefficients": ops.full_like(votes[..., 0], factor), "poses": poses}

    def without_votes(self, count):
        """See `Routing.without_votes`: the sum of all votes is one matrix product."""

        def route(children, matrices):
            factor = self._factor(matrices.shape[2])
            poses = self._parents(_sum_of_votes(children, matrices) * factor)
            return poses, ops.full((*ops.shape(children)[:2], matrices.shape[2]), factor)

        return route

    def _factor(self, parents):
        return 1.0 if self.scale == "sum" else 1.0 / parents

    def step(self, state, votes, activations, iteration):
        return state  # However often it is asked, nothing is negotiated.

    def get_config(self):
        config = super().get_config()
        del config["num_iterations"], config["leaky"]
        return {**config, "scale": self.scale}


def _sum_of_votes(children, matrices):
    """sum_i u_i W_ij `[B, O, E]` of u_i `[B, I, D]` and W_ij `[I, D, O, E]`: one matrix product."""
    count, width, parents, entries = matrices.shape
    children = ops.reshape(children, (-1, count * width))
    total = ops.matmul(children, ops.reshape(matrices, (count * width, parents * entries)))
    return ops.reshape(total, (-1, parents, entries))
