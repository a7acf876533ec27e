"""Routing whose hooks see all positions of all images as one axis: sums over children are products of matrices."""

from keras import ops

from capszoo.routing.base import Routing
from capszoo.routing.by_image import by_image, deviations


class _RoutingByPosition(Routing):
    """A routing whose hooks see votes `[N, O, I, D]`, activations `[N, I]` and coefficients `[N, O, I]`.

    N are all positions of all images. The hooks serve votes of a whole batch and, as a graph, votes of one image after
    the other.

    where:
      needs_activations: whether the children's matter; those of a subclass that says no are None or ignored.
      order_matters: whether the numbers of a pose have weights of their own. Where they have none the graph of one
        image lists them row by row, which moves nothing, and not column by column as layers do.
      centred: whether it routes votes from their means over children, as only those can whose order does not matter.

    Errors: `ValueError` for votes of rank below 4 and for activations that are needed and missing.
    """

    needs_activations = True
    order_matters = True
    centred = False

    def build(self, votes_shape):
        if len(votes_shape) < 4:
            raise ValueError(f"votes must be [B, ..., I, O, D]. Received shape: {tuple(votes_shape)}")

    def routed(self, votes, activations, num_iterations, return_history):
        if self.needs_activations:
            self.require_activations(activations, votes.shape[:-2])
        else:
            activations = None
        (children, parents, dimensions), grid = votes.shape[-3:], votes.shape[1:-3]
        # [B, ..., I, O, D] -> [N, O, I, D]
        votes = ops.swapaxes(ops.reshape(votes, (-1, children, parents, dimensions)), 1, 2)
        if activations is not None:
            activations = ops.reshape(activations, (-1, children))
        poses, activations, *history = super().routed(votes, activations, num_iterations, return_history)
        poses = ops.reshape(poses, (-1, *grid, parents, dimensions))
        activations = ops.reshape(activations, (-1, *grid, parents))
        # [T, N, O, I] -> [T, B, ..., I, O]
        history = [
            ops.reshape(ops.swapaxes(item, 2, 3), (item.shape[0], -1, *grid, children, parents))
            for item in history
        ]
        return (poses, activations, *history)

    def _route(self, votes, activations, count, return_history):
        if not self.centred:
            return super()._route(votes, activations, count, return_history)
        mean = ops.mean(votes, axis=2)
        return self._from_mean(deviations(votes, mean), mean, activations, count, return_history)

    def _from_mean(self, deviation, mean, *others):
        """The routing of votes that lie `deviation` from their `mean`."""
        poses, *others = super()._route(deviation, *others)
        return mean + poses, *others

    @property
    def routes_by_image(self):
        """See `Routing.routes_by_image`."""
        return True

    def by_image(self, connections, count):
        """See `Routing.by_image`."""

        def procedure(votes, poses, activations, matrices):
            seen, rows = votes.children.seen(activations), votes.rows(poses)
            if self.centred:
                return self._from_mean(*votes.centred(rows, matrices), seen, count, False)
            votes_of = votes.by_columns if self.order_matters else votes.of
            mean, activations = self._route(votes_of(rows, matrices), seen, count, False)
            return votes.from_columns(mean) if self.order_matters else mean, activations

        return by_image(connections, procedure)
