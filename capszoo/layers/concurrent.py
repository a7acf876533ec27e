"""Layers of capsules that are routed at the same time, by inverted dot-product attention."""

import math

import keras
import numpy as np
from keras import ops

from capszoo.layers.arguments import require_counts, require_routing, require_static
from capszoo.layers.routes import Routes
from capszoo.routing.base import iteration_count
from capszoo.routing.by_image import Votes
from capszoo.routing.connections import connections
from capszoo.routing.inverted_attention import InvertedAttentionRouting
from capszoo.routing.neighbourhood import Neighbourhood
from capszoo.routing.tracing import compiled


@keras.saving.register_keras_serializable(package="capszoo")
class ConcurrentCapsules(Routes, keras.layers.Layer):
    """Convolutional layers of capsules and class capsules above them, whose iterations of routing are simultaneous.

        P_l = start(votes of P_l-1)                          # l = 1 .. L, from the bottom up
        repeat num_iterations - 1 times, for all l at once:
            P_l <- step(votes of P_l-1, P_l)                 # both as they were before
        votes of a child M_i: M_i W_ij

    where:
      P_0: children's poses `[B, H, W, types, side, side]`; they have no activations.
      P_l: poses of layer l. What is returned are those of the last, the class capsules, `[B, O, side, side]`, float32.
      types: capsules at each position of each convolutional layer.
      windows: `(kernel_size, strides)` of each convolutional layer, without padding.
      num_classes: O, class capsules; they see all capsules below them.
      W_ij: of the convolutional layers, `conv_capsules1`, ...: `kernel[K * K * types below, side, types, side]`, taps
        row by row and the types below fastest, the same at all positions; of `class_capsules`, with one matrix for each
        capsule below: `kernel[H * W * types below, side, O, side]`. Normal, of deviation
        sqrt(types of parents / (side * children of a parent)).
      routing: an `InvertedAttentionRouting`; it says how often, and is that of the class capsules. Each convolutional
        layer has another like it, with weights of its own.

    `return_history=True` returns `(poses, coefficients[T, B, I, O])`, those of the class capsules; `num_iterations`
    overrides the routing's own count and may be a tensor.
    Errors: `ValueError` for types and windows that are not equally many, for another routing and for that of another
    layer, for a grid smaller than a window, for poses that are not square, and for children of other shapes than
    before.
    Source: Tsai et al. 2020, Procedure 2 and section 3; initial weights from the authors' code.
    Differs from the authors' code: what that takes for a pose of convolutional capsules has entries of several
    positions, since it lays windows out in another order than it reads them in. Here every pose is of one position, as
    in the paper.
    """

    def __init__(self, types, windows, num_classes, routing, **kwargs):
        super().__init__(**kwargs)
        if len(types) != len(windows):
            raise ValueError(f"types and windows must be equally many. Received: {types} and {windows}")
        for count, (kernel_size, strides) in zip(types, windows, strict=True):
            require_counts(types=count, kernel_size=kernel_size, strides=strides)
        require_counts(num_classes=num_classes)
        require_routing(routing, InvertedAttentionRouting)
        self.types, self.windows = tuple(types), tuple(tuple(window) for window in windows)
        self.num_classes = num_classes
        self.routing = routing
        self._procedure = None

    def build(self, poses_shape):
        self.require_own_routing()
        require_static(poses_shape)
        self.take_only(poses_shape)
        *grid, types, self.side, columns = poses_shape[1:]
        if self.side != columns:
            raise ValueError(f"poses must be square matrices. Received shape: {tuple(poses_shape)}")
        self.levels = []
        for number, (parents, window) in enumerate(zip(self.types, self.windows, strict=True), start=1):
            # Not of its configuration: Keras imports TensorFlow to make one, under JAX too.
            routing = type(self.routing)(self.routing.num_iterations, name=self.routing.name)
            self.levels.append(_Level(parents, window, routing, name=f"conv_capsules{number}"))
        self.levels.append(_Level(self.num_classes, None, self.routing, name="class_capsules"))
        for level in self.levels:
            level.build((None, *grid, types, self.side, self.side))
            grid, types = level.grid, level.types

    @property
    def child_types(self):
        """See `Routes`; those of the class capsules' children."""
        return self.types[-1] if self.types else super().child_types

    def parent_shapes(self, batch):
        """See `Routes`."""
        return batch, self.num_classes, self.side, self.side

    def votes_of(self, children):
        """See `Routes`; those of the last iteration."""
        return self.votes_at(children, self.routing.num_iterations)

    def votes_at(self, children, iteration):
        """See `Routes`."""
        children = ops.cast(children, "float32")
        for states in self._iterations(children, max(iteration - 1, 1)):
            below = [self._flat(children), *(state["poses"] for state in states)][-2]
        votes = self.levels[-1].votes(below)
        # [B, O, I, row * column] -> [B, I, O, column * row]
        votes = ops.reshape(votes, (-1, *votes.shape[1:3], self.side, self.side))
        votes = ops.transpose(votes, (0, 2, 1, 4, 3))
        return ops.reshape(votes, (-1, *votes.shape[1:3], self.side**2))

    def call(self, children, num_iterations=None, return_history=False):
        count = iteration_count(self.routing.num_iterations if num_iterations is None else num_iterations)
        if return_history and not isinstance(count, int):
            raise ValueError("return_history=True needs num_iterations as an int. Received a tensor.")
        if self._procedure is None:
            self._procedure = compiled(self._route)
        return self._procedure(ops.cast(children, "float32"), count, return_history)

    def _route(self, children, count, return_history):
        if not isinstance(count, int):
            return self._poses(self._loop(children, count)[-1])
        states = list(self._class_states(children, count))
        poses = self._poses(states[-1]["poses"])
        if not return_history:
            return poses
        # [B, O, I] -> [T, B, I, O]
        return poses, ops.swapaxes(ops.stack([state["coefficients"] for state in states]), 2, 3)

    def _class_states(self, children, count):
        """The class capsules' state after each of `count` iterations; in the last one nothing else is stepped."""
        for states in self._iterations(children, max(count - 1, 1)):
            yield states[-1]
        if count > 1:
            yield self._step(self._flat(children), [state["poses"] for state in states], slice(-1, None))[0]

    def _iterations(self, children, count):
        """The states of all layers after each of `count` iterations, the uniform one included."""
        children, states = self._flat(children), []
        for level in self.levels:
            states.append(level.start(states[-1]["poses"] if states else children))
        yield states
        for _ in range(1, count):
            states = self._step(children, [state["poses"] for state in states])
            yield states

    def _step(self, children, poses, which=slice(None)):
        """The states of some layers after one more iteration, of the poses `[b, C, D]` of all layers."""
        steps = list(zip(self.levels, [children, *poses[:-1]], poses, strict=True))
        return [level.step(*each) for level, *each in steps[which]]

    def _loop(self, children, count):
        """The poses of all layers after `count` iterations, a tensor."""
        (first,) = self._iterations(children, 1)
        children = self._flat(children)

        def body(iteration, *poses):
            return (iteration + 1, *(state["poses"] for state in self._step(children, poses)))

        values = ops.convert_to_tensor(1, dtype="int32"), *(state["poses"] for state in first)
        count = ops.cast(count, "int32")
        return ops.while_loop(lambda iteration, *_: iteration < count, body, values)[1:]

    def _flat(self, children):
        # [B, H, W, types, side, side] -> [B, C, D]
        return ops.reshape(children, (-1, math.prod(children.shape[1:4]), self.side**2))

    def _poses(self, poses):
        # [B, O, D] -> [B, O, side, side]
        return ops.reshape(poses, (-1, self.num_classes, self.side, self.side))

    def get_config(self):
        own = {"types": self.types, "windows": self.windows, "num_classes": self.num_classes}
        return {**super().get_config(), **own}


class _Level(keras.layers.Layer):
    """One of the layers: what its capsules are, one iteration after the other.

    where:
      window: `(kernel_size, strides)`; or None for one position, which sees all capsules below, each with its own
        matrices.
      grid: of its positions.
    """

    def __init__(self, types, window, routing, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        self.types, self.window, self.routing = types, window, routing

    def build(self, poses_shape):
        *grid, types, side, _ = poses_shape[1:]
        if self.window is None:
            child = np.arange(math.prod(grid) * types)[None]
            self.grid = 1, 1
        else:
            neighbourhood = Neighbourhood(*self.window, tuple(grid))
            child = neighbourhood.children(types)
            self.grid = neighbourhood.parent_grid
        seen = child.shape[1]
        addition, uniform = np.zeros((seen, side * side)), np.full(child.shape, 1.0 / self.types)
        known = connections(child, np.arange(seen), addition, uniform)
        self._votes = Votes(known, math.prod(grid) * types, side)
        deviation = math.sqrt(self.types / (side * seen))
        self.kernel = self.add_weight(
            name="kernel",
            shape=(seen, side, self.types, side),
            initializer=keras.initializers.RandomNormal(stddev=deviation),
            autocast=False,
        )
        self.routing.build((None, seen, self.types, side * side))

    def votes(self, children):
        """V_ij `[N, O, I, D]` of children `[b, C, D]`, N being all positions of all images."""
        return self._votes.of(self._votes.rows(children), self._matrices())

    def start(self, children):
        """The first poses `[b, C', D]` and coefficients `[N, O, I]`, of children `[b, C, D]`.

        Those of convolutional layers are made without votes. With two iterations nothing else needs these, since the
        class capsules' step reads poses as they start. The step of the class capsules needs the votes of their start.
        """
        if self.window is None:
            return self._flat(self.routing.start(self.votes(children), None))
        sums = self._votes.sums(children, self._matrices())
        return self._flat(self.routing.start_of_sums(sums, self.kernel.shape[0]))

    def step(self, children, poses):
        """The next ones, of poses `[b, C', D]`."""
        # [b, C', D] -> [N, O, D]
        state = {"poses": ops.reshape(poses, (-1, self.types, poses.shape[2]))}
        return self._flat(self.routing.step(state, self.votes(children), None, 1))

    def _matrices(self):
        seen, side = self.kernel.shape[:2]
        return ops.reshape(ops.convert_to_tensor(self.kernel), (seen, side, self.types * side))

    def _flat(self, state):
        # [N, O, D] -> [b, C', D]
        poses = state["poses"]
        parents = math.prod(self.grid) * self.types
        return {**state, "poses": ops.reshape(poses, (-1, parents, poses.shape[2]))}
