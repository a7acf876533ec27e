"""Routing by the children's lengths."""

import keras
from keras import ops

from capszoo.routing import Routing, cpu, length, squash


@keras.saving.register_keras_serializable(package="capszoo_example")
class LengthRouting(Routing):
    """Each parent is the squashed sum of the votes, weighted by the softmax of their lengths over the parents."""

    def start(self, votes, activations):
        coefficients = ops.full_like(votes[..., 0], 1.0 / votes.shape[-2])
        return {"coefficients": coefficients, "poses": squash(ops.mean(votes, axis=-3))}

    def step(self, state, votes, activations, iteration):
        coefficients = ops.softmax(ops.sum(votes**2, axis=-1), axis=-1)
        poses = squash(ops.sum(coefficients[..., None] * votes, axis=-3))
        return {"coefficients": coefficients, "poses": poses}

    def finish(self, state, votes, activations):
        return state["poses"], length(state["poses"])

    @property
    def compilable(self):
        return True

    def without_votes(self, count):
        """Compiled for the CPU, where that may be used; more iterations change nothing."""
        if not isinstance(count, int) or count < 2 or not cpu.enabled():
            return None
        from capszoo_example.compiled import routed

        def route(children, matrices):
            sums, coefficients = routed(children, matrices)
            return squash(sums), coefficients

        return route
