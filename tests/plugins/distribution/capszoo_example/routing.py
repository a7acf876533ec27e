"""Routing by the children's lengths."""

import keras
from keras import ops

from capszoo.routing import Routing, length, squash


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
