"""Routing whose hooks see every position of every image as one axis, the last."""

from keras import ops

from capszoo.routing.base import Routing


class _PositionsLast(Routing):
    """A routing that computes on votes `[I, O, D, N]` and activations `[I, N]`, all positions of all images being N.

    That is the order in which layers make votes: every operation then runs along contiguous positions, and no tensor
    of the size of the votes is ever transposed. `positions_last=True` takes votes `[I, O, D, B, ...]` and activations
    `[I, B, ...]` and returns all results that way, `[O, D, B, ...]`, `[O, B, ...]` and `[T, I, O, B, ...]`.

    Errors: `ValueError` for missing activations.
    """

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
