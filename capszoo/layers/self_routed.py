"""Class capsules of self-routing: activations without poses."""

import math

import keras
from keras import ops

from capszoo.layers.arguments import require_capsules, require_counts, require_routing
from capszoo.layers.routes import Routes
from capszoo.routing.self_routing import SelfRouting


@keras.saving.register_keras_serializable(package="capszoo")
class SelfRoutedClassCapsules(Routes, keras.layers.Layer):
    """Class capsules that every capsule below shares itself among; they have no poses.

        l_ij = u_i W_ij
        a_j = routing(l_ij, a_i)

    where:
      u_i, a_i: children, a pair of poses `[B, ..., D]` and activations `[B, ...]`; all axes between are flattened to I
        children.
      W_ij: `kernel[I, D, O]`, truncated normal of standard deviation 0.01: every child begins by sharing itself almost
        equally.
      a_j: activations `[B, O]`, float32, in [0, 1].
      routing: a `capszoo.routing.SelfRouting`; its votes are the logits `[B, I, O, 1]`.

    `return_history=True` returns `(activations, coefficients[1, B, I, O])`.
    Errors: `ValueError` for another routing and for that of another layer, and for children without a static count and
    of other shapes than before.
    Source: Hahn, Pyeon and Kim 2019, "Self-routing capsule networks", on self-routing, and the authors' code.
    Differs from the authors' code: their matrices begin at zero, where no gradient reaches the children.
    """

    posed = False

    def __init__(self, num_capsules, routing, **kwargs):
        super().__init__(**kwargs)
        require_counts(num_capsules=num_capsules)
        require_routing(routing, SelfRouting)
        self.num_capsules = num_capsules
        self.routing = routing

    def build(self, capsules_shape):
        poses_shape = capsules_shape[0]
        require_capsules(*capsules_shape, axes=1)
        self.take_only(capsules_shape)
        self.children = math.prod(poses_shape[1:-1])
        shape = self.children, poses_shape[-1], self.num_capsules
        initializer = keras.initializers.TruncatedNormal(stddev=0.01)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=initializer)
        self.build_routing((None, self.children, self.num_capsules, 1))

    def parent_shapes(self, batch):
        """See `Routes`."""
        return batch, self.num_capsules

    def votes_of(self, children):
        """See `Routes`; logits `[B, I, O, 1]`."""
        # [B, ..., D] -> [B, I, D]
        poses = ops.reshape(children[0], (-1, self.children, self.kernel.shape[1]))
        return ops.expand_dims(ops.einsum("bid,ido->bio", poses, ops.cast(self.kernel, poses.dtype)), -1)

    def call(self, capsules, num_iterations=None, return_history=False):
        activations = ops.reshape(capsules[1], (-1, self.children))
        _, parents, *history = self.routing(
            self.votes_of(capsules), activations, num_iterations=num_iterations, return_history=return_history
        )
        return (parents, *history) if return_history else parents

    def get_config(self):
        return {**super().get_config(), "num_capsules": self.num_capsules}
