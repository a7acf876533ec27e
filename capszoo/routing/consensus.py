"""The loop of Faria 2019: each parent gathers a consensus among the children it hears."""

from keras import ops

from capszoo.routing.base import Routing


class _ConsensusRouting(Routing):
    """What the learned routings share: each parent is a mean of its votes, with coefficients that it gives itself.

        c_ij = 1 / I, mu_j = sum_i c_ij * V_ij                             # Algorithm 1
        repeat for t = 1 .. num_iterations:
            c_j = softmax_i( logits of V_j, mu_j, a )                      # a subclass's `_logits`
            mu_j = sum_i c_ij * V_ij

    Coefficients sum to one over the children of a parent. Parents do not compete, so that neither their types nor
    their positions need to know of each other. The uniform coefficients are not counted as an iteration.

    `positions_last=True` takes votes `[I, O, D, B, ...]` and activations `[I, B, ...]` and returns all results that
    way, as `EMRouting` does; in that order the hooks compute, all positions of all images being one axis N.

    Errors: `ValueError` for votes of rank below 4 and for missing activations.
    """

    def build(self, votes_shape):
        if len(votes_shape) < 4:
            raise ValueError(f"votes must be [B, ..., I, O, D]. Received shape: {tuple(votes_shape)}")

    def call(self, votes, activations=None, num_iterations=None, return_history=False, positions_last=False):
        if activations is None:
            raise ValueError(f"{type(self).__name__} needs the children's activations. Received: None")
        if not positions_last:
            votes = ops.moveaxis(votes, (-3, -2, -1), (0, 1, 2))
            activations = ops.moveaxis(activations, -1, 0)
        (children, parents, dimensions), grid = votes.shape[:3], votes.shape[4:]
        votes = ops.reshape(votes, (children, parents, dimensions, -1))
        activations = ops.reshape(activations, (children, -1))
        poses, activations, *history = super().call(votes, activations, num_iterations, return_history)
        poses = ops.reshape(poses, (parents, dimensions, -1, *grid))
        activations = ops.reshape(activations, (parents, -1, *grid))
        history = [ops.reshape(item, (item.shape[0], children, parents, -1, *grid)) for item in history]
        if not positions_last:
            poses = ops.moveaxis(poses, (0, 1), (-2, -1))
            activations = ops.moveaxis(activations, 0, -1)
            history = [ops.moveaxis(item, (1, 2), (-2, -1)) for item in history]
        return (poses, activations, *history)

    def start(self, votes, activations):
        uniform = {
            "coefficients": ops.full_like(votes[:, :, 0], 1.0 / votes.shape[0]),
            "poses": ops.mean(votes, axis=0),
        }
        return self.step({**uniform, **self._memory(votes)}, votes, activations, 0)

    def step(self, state, votes, activations, iteration):
        logits, memory = self._logits(state, votes, activations)
        coefficients = ops.softmax(logits, axis=0)
        poses = ops.sum(ops.expand_dims(coefficients, 2) * votes, axis=0)
        return {"coefficients": coefficients, "poses": poses, **memory}

    def _memory(self, votes):
        """What a subclass remembers from iteration to iteration, before the first: a dict of tensors."""
        return {}

    def _logits(self, state, votes, activations):
        """Logits of the coefficients `[I, O, N]`, and the new memory."""
        raise NotImplementedError
