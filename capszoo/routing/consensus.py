"""The loop of Faria 2019: each parent gathers a consensus among the children that vote for it."""

from keras import ops

from capszoo.routing.by_image import row_times
from capszoo.routing.by_position import _RoutingByPosition


class _ConsensusRouting(_RoutingByPosition):
    """What the learned routings share: each parent is a mean of its votes, with coefficients that it gives itself.

        c_ij = 1 / I, mu_j = sum_i c_ij * V_ij                             # Algorithm 1
        repeat for t = 1 .. num_iterations:
            c_j = softmax_i( logits of V_j, mu_j, a )                      # a subclass's `_logits`
            mu_j = sum_i c_ij * V_ij

    Coefficients sum to one over the children of a parent. Parents do not compete, so that neither their types nor
    their positions need to know of each other. The uniform coefficients are not counted as an iteration.

    See `_RoutingByPosition` for what the hooks see.
    """

    def start(self, votes, activations):
        coefficients = ops.full_like(votes[..., 0], 1.0 / votes.shape[2])
        state = {"coefficients": coefficients, "poses": ops.mean(votes, axis=2)}
        return self.step({**state, **self._memory(votes, activations)}, votes, activations, 0)

    def step(self, state, votes, activations, iteration):
        logits, memory = self._logits(state, votes, activations)
        coefficients = ops.softmax(logits, axis=2)
        poses = row_times(coefficients, votes)
        return {"coefficients": coefficients, "poses": poses, **memory}

    def _memory(self, votes, activations):
        """What a subclass remembers from iteration to iteration, before the first: a dict of tensors."""
        return {}

    def _logits(self, state, votes, activations):
        """Logits of the coefficients `[N, O, I]`, and the new memory."""
        raise NotImplementedError
