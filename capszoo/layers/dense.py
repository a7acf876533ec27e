"""Fully connected capsules: every child votes for every parent."""

import math

import keras
from keras import ops

from capszoo.layers.arguments import require_counts, require_routing, require_static
from capszoo.layers.routes import Routes
from capszoo.routing.base import iteration_count


@keras.saving.register_keras_serializable(package="capszoo")
class DenseCapsules(Routes, keras.layers.Layer):
    """Capsules that receive a vote from every capsule below, and a routing that reconciles the votes.

        u_ij = u_i W_ij                                      # votes; equation 2
        v_j = routing(u_ij)

    where:
      u_i: children's poses `[B, ..., D]`; all axes but the first and the last are flattened to I children.
      W_ij: `kernel[I, D, O, pose_dim]`, truncated normal of standard deviation 0.1. Fans computed over such a tensor
        would be wrong, hence the fixed one.
      v_j: parents' poses `[B, O, pose_dim]`, float32.
      routing: a `capszoo.routing.Routing`.

    `return_history=True` returns `(poses, coefficients[T, B, I, O])`; `num_iterations` overrides the routing's own
    count and may be a tensor.
    Errors: `ValueError` for children without a static count and of other shapes than before, and for a routing of
    another layer.
    Source: Sabour et al. 2017, equation 2 and section 4 (DigitCaps).
    """

    def __init__(self, num_capsules, pose_dim, routing, **kwargs):
        super().__init__(**kwargs)
        require_counts(num_capsules=num_capsules, pose_dim=pose_dim)
        require_routing(routing)
        self.num_capsules = num_capsules
        self.pose_dim = pose_dim
        self.routing = routing

    def build(self, input_shape):
        require_static(input_shape)
        self.take_only(input_shape)
        self.children = math.prod(input_shape[1:-1])
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.children, input_shape[-1], self.num_capsules, self.pose_dim),
            initializer=keras.initializers.TruncatedNormal(stddev=0.1),
        )
        self.build_routing((None, self.children, self.num_capsules, self.pose_dim))

    def votes(self, poses):
        """Votes `[B, I, O, pose_dim]` of the children's poses `[B, ..., D]`."""
        children = self._children(poses)
        # One matrix product per child. O and the parent's D stay one axis, so that the product is a plain
        # [B, D] x [D, O * pose_dim] and nothing is tiled.
        kernel = ops.reshape(self.kernel, (self.children, poses.shape[-1], self.num_capsules * self.pose_dim))
        votes = ops.einsum("bid,idx->bix", children, kernel)
        return ops.reshape(votes, (-1, self.children, self.num_capsules, self.pose_dim))

    def parent_shapes(self, batch):
        """See `Routes`."""
        return batch, self.num_capsules, self.pose_dim

    def votes_of(self, children):
        """See `Routes`."""
        return self.votes(children)

    def call(self, poses, num_iterations=None, return_history=False):
        if return_history:
            parents, _, history = self.routing(
                self.votes(poses), num_iterations=num_iterations, return_history=return_history
            )
            return parents, history
        route = self._without_votes(num_iterations)
        return route(poses)[0] if route else self.routing(self.votes(poses), num_iterations=num_iterations)[0]

    def _without_votes(self, num_iterations):
        """A function of poses that returns parents and the last coefficients, where the routing needs no votes."""
        count = iteration_count(self.routing.num_iterations if num_iterations is None else num_iterations)
        route, dtype = self.routing.without_votes(count), self.routing.compute_dtype
        if route is None:
            return None
        return lambda poses: route(ops.cast(self._children(poses), dtype), ops.cast(self.kernel, dtype))

    def _children(self, poses):
        # [B, ..., D] -> [B, I, D]
        return ops.reshape(poses, (-1, self.children, poses.shape[-1]))

    def get_config(self):
        return {
            **super().get_config(),
            "num_capsules": self.num_capsules,
            "pose_dim": self.pose_dim,
        }
