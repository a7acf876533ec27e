"""The loop of Faria 2019: each parent gathers a consensus among the children that vote for it."""

from keras import ops

from capszoo.routing.base import Routing
from capszoo.routing.by_image import SIDE, by_image


class _ConsensusRouting(Routing):
    """What the learned routings share: each parent is a mean of its votes, with coefficients that it gives itself.

        c_ij = 1 / I, mu_j = sum_i c_ij * V_ij                             # Algorithm 1
        repeat for t = 1 .. num_iterations:
            c_j = softmax_i( logits of V_j, mu_j, a )                      # a subclass's `_logits`
            mu_j = sum_i c_ij * V_ij

    Coefficients sum to one over the children of a parent. Parents do not compete, so that neither their types nor
    their positions need to know of each other. The uniform coefficients are not counted as an iteration.

    The hooks see votes `[N, O, I, D]`, activations `[N, I]` and coefficients `[N, O, I]`, all positions of all images
    being N: a mean of votes is then a product of matrices. `positions_last=True` takes votes `[I, O, D, B, ...]` and
    activations `[I, B, ...]`, as layers make them, and returns all results that way, `[O, D, B, ...]`, `[O, B, ...]`
    and `[T, I, O, B, ...]`.

    Errors: `ValueError` for votes of rank below 4 and for missing activations.
    """

    def build(self, votes_shape):
        if len(votes_shape) < 4:
            raise ValueError(f"votes must be [B, ..., I, O, D]. Received shape: {tuple(votes_shape)}")

    def call(self, votes, activations=None, num_iterations=None, return_history=False, positions_last=False):
        self.require_activations(activations)
        if positions_last:
            votes = ops.moveaxis(votes, (0, 1, 2), (-3, -2, -1))
            activations = ops.moveaxis(activations, 0, -1)
        (children, parents, dimensions), grid = votes.shape[-3:], votes.shape[1:-3]
        # [B, ..., I, O, D] -> [N, O, I, D]
        votes = ops.swapaxes(ops.reshape(votes, (-1, children, parents, dimensions)), 1, 2)
        activations = ops.reshape(activations, (-1, children))
        poses, activations, *history = super().call(votes, activations, num_iterations, return_history)
        poses = ops.reshape(poses, (-1, *grid, parents, dimensions))
        activations = ops.reshape(activations, (-1, *grid, parents))
        # [T, N, O, I] -> [T, B, ..., I, O]
        history = [
            ops.reshape(ops.swapaxes(item, 2, 3), (item.shape[0], -1, *grid, children, parents))
            for item in history
        ]
        if positions_last:
            poses = ops.moveaxis(poses, (-2, -1), (0, 1))
            activations = ops.moveaxis(activations, -1, 0)
            history = [ops.moveaxis(item, (-2, -1), (1, 2)) for item in history]
        return (poses, activations, *history)

    @property
    def routes_by_image(self):
        """See `Routing.routes_by_image`."""
        return True

    def by_image(self, connections, count):
        """See `Routing.by_image`."""

        def procedure(votes, poses, activations, matrices):
            seen = votes.children.seen(activations)
            mean, activations = self._route(votes.by_columns(votes.rows(poses), matrices), seen, count, False)
            # [N, O, column * row] -> [N, O, row, column]
            return ops.swapaxes(ops.reshape(mean, (-1, mean.shape[1], SIDE, SIDE)), 2, 3), activations

        return by_image(connections, procedure)

    def start(self, votes, activations):
        coefficients = ops.full_like(votes[..., 0], 1.0 / votes.shape[2])
        state = {"coefficients": coefficients, "poses": ops.mean(votes, axis=2)}
        return self.step({**state, **self._memory(votes, activations)}, votes, activations, 0)

    def step(self, state, votes, activations, iteration):
        logits, memory = self._logits(state, votes, activations)
        coefficients = ops.softmax(logits, axis=2)
        poses = ops.matmul(ops.expand_dims(coefficients, 2), votes)[:, :, 0]
        return {"coefficients": coefficients, "poses": poses, **memory}

    def _memory(self, votes, activations):
        """What a subclass remembers from iteration to iteration, before the first: a dict of tensors."""
        return {}

    def _logits(self, state, votes, activations):
        """Logits of the coefficients `[N, O, I]`, and the new memory."""
        raise NotImplementedError
