"""Capsules of Heinsen 2019: matrices that children share or have of their own, and a bias under every vote."""

import math

import keras
from keras import ops

from capszoo.layers.arguments import require_capsules, require_counts, require_routing
from capszoo.layers.routes import Routes
from capszoo.routing.base import iteration_count
from capszoo.routing.heinsen import HeinsenRouting, SharedVotes
from capszoo.routing.tracing import compiled


@keras.saving.register_keras_serializable(package="capszoo")
class HeinsenCapsules(Routes, keras.layers.Layer):
    """Capsules that every capsule below votes for.

        V_ij = M_i W_ij + B_ij        # equation 1; with a routing of shared betas W_j and B_j
        mu_j, a_j = routing(V_ij, a_i)

    where:
      M_i, a_i: children, a pair of poses `[B, ..., rows, width]` and activations `[B, ...]`; all axes between are
        flattened to I children.
      W_ij: `kernel[I, types, width, width]`, normal of standard deviation 1 / width; B_ij: `bias[I, types, rows,
        width]`, at first zero. Where the routing's betas are shared by all children, matrices are too, and have no
        axis I: then votes are never made, see `capszoo.routing.heinsen.SharedVotes`, and there may be thousands of
        children.
      mu_j, a_j: parents, a pair of poses `[B, types, rows, width]` and activations `[B, types]`, float32; logits of
        activations where the routing says so.
      routing: a `HeinsenRouting`.

    `return_history=True` returns `(capsules, coefficients[T, B, I, O])`; `num_iterations` overrides the routing's own
    count and may be a tensor.
    Errors: `ValueError` for another routing and for that of another layer, and for children without a static count and
    of other shapes than before.
    Source: Heinsen 2019, "An algorithm for routing capsules in all domains", equation 1; initial values from the
    author's code.
    """

    def __init__(self, types, routing, **kwargs):
        super().__init__(**kwargs)
        require_counts(types=types)
        require_routing(routing, HeinsenRouting)
        self.types = types
        self.routing = routing
        self._procedure = None

    def build(self, capsules_shape):
        poses_shape = capsules_shape[0]
        require_capsules(*capsules_shape, axes=2)
        self.take_only(capsules_shape)
        self.rows, self.width = poses_shape[-2:]
        self.children = math.prod(poses_shape[1:-2])
        own = () if self.routing.shared_betas else (self.children,)
        initializer = keras.initializers.RandomNormal(stddev=1.0 / self.width)
        shape = *own, self.types, self.width, self.width
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=initializer, autocast=False)
        shape = *own, self.types, self.rows, self.width
        self.bias = self.add_weight(name="bias", shape=shape, initializer="zeros", autocast=False)
        self.build_routing((None, self.children, self.types, self.rows * self.width))

    def parent_shapes(self, batch):
        """See `Routes`."""
        return (batch, self.types, self.rows, self.width), (batch, self.types)

    def votes_of(self, children):
        """See `Routes`."""
        # [B, O, I, rows, width] -> [B, I, O, width, rows] -> [B, I, O, D]
        votes = ops.transpose(self._votes(self._flat(children[0])), (0, 2, 1, 4, 3))
        return ops.reshape(votes, (-1, *votes.shape[1:3], self.rows * self.width))

    def call(self, capsules, num_iterations=None, return_history=False):
        count = iteration_count(self.routing.num_iterations if num_iterations is None else num_iterations)
        if return_history and not isinstance(count, int):
            raise ValueError("return_history=True needs num_iterations as an int. Received a tensor.")
        if self._procedure is None:
            self._procedure = compiled(self._route)
        activations = ops.reshape(ops.cast(capsules[1], "float32"), (-1, self.children))
        poses, activations, *history = self._procedure(
            self._flat(capsules[0]), activations, count, return_history
        )
        return ((poses, activations), *history) if return_history else (poses, activations)

    def _route(self, poses, activations, count, return_history):
        if self.routing.shared_betas:
            votes = SharedVotes(poses, *self._weights())
        else:
            votes = ops.reshape(self._votes(poses), (-1, self.types, self.children, self.rows * self.width))
        # [B, O, D], [B, O], [T, B, O, I]
        poses, activations, *history = self.routing.route(votes, activations, count, return_history)
        poses = ops.reshape(poses, (-1, self.types, self.rows, self.width))
        return (poses, activations, *(ops.swapaxes(item, 2, 3) for item in history))

    def _votes(self, poses):
        """V_ij `[B, O, I, rows, width]` of M_i `[B, I, rows, width]`."""
        kernel, bias = self._weights()
        if not self.routing.shared_betas:
            # [I, O, ...] -> [O, I, ...]
            kernel, bias = ops.swapaxes(kernel, 0, 1), ops.swapaxes(bias, 0, 1)
        else:
            kernel, bias = kernel[:, None], bias[:, None]
        return ops.matmul(ops.expand_dims(poses, 1), kernel) + bias

    def _weights(self):
        return (ops.cast(ops.convert_to_tensor(weight), "float32") for weight in (self.kernel, self.bias))

    def _flat(self, poses):
        return ops.reshape(ops.cast(poses, "float32"), (-1, self.children, self.rows, self.width))

    def get_config(self):
        return {**super().get_config(), "types": self.types}
