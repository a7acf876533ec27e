"""Capsules with a pose and a separate activation: primary, convolutional, and class capsules.

Between these layers capsules are a pair: poses `[B, H, W, types, 4, 4]` (vector poses: `[B, H, W, types, 16]`) and
activations `[B, H, W, types]` in [0, 1], both float32.
"""

import functools
import math

import keras
import numpy as np
from keras import ops

from capszoo.layers.arguments import require_counts, require_routing, require_static
from capszoo.layers.outputs import Float32Outputs
from capszoo.layers.routes import Routes
from capszoo.routing import cpu
from capszoo.routing.base import iteration_count
from capszoo.routing.connections import connections
from capszoo.routing.neighbourhood import Neighbourhood
from capszoo.routing.tracing import compiled

POSE_SIDE = 4
# Shape of a pose, and the same as rows of what one transformation matrix multiplies: a vector is a single row.
POSES = {"matrix": ((POSE_SIDE, POSE_SIDE), POSE_SIDE), "vector": ((POSE_SIDE**2,), POSE_SIDE**2)}


class _PosedCapsules(keras.layers.Layer):
    """What the layers share: poses that are matrices or vectors, and their order inside a layer.

    Inside, positions come last, `[types * D, B, H, W]`: the products that make votes then come out as routing wants
    them, and only poses, never votes, are transposed. A matrix pose is there listed column by column.
    """

    def __init__(self, pose="matrix", **kwargs):
        super().__init__(**kwargs)
        if pose not in POSES:
            raise ValueError(f"pose must be 'matrix' or 'vector'. Received: {pose!r}")
        self.pose = pose
        self.pose_shape, self.width = POSES[pose]
        self.rows = POSE_SIDE**2 // self.width

    def _positions_last(self, capsules):
        """Poses `[types * D, B, H, W]` and activations `[types, B, H, W]` of capsules `[B, H, W, types, ...]`."""
        poses, activations = capsules
        height, width, types = activations.shape[1:]
        # [B, H, W, types, row, column] -> [types, column, row, B * H * W]
        poses = ops.reshape(poses, (-1, types, self.rows, self.width))
        poses = ops.reshape(ops.transpose(poses, (1, 3, 2, 0)), (types * POSE_SIDE**2, -1, height, width))
        # Unlike `moveaxis` it takes variables, as where inputs are what is optimised.
        return ops.cast(poses, self.compute_dtype), ops.transpose(activations, (3, 0, 1, 2))

    def _capsules(self, poses, activations):
        """Capsules `[B, H, W, types, ...]` or `[B, types, ...]` of what routing returned for positions last."""
        types, grid = poses.shape[0], poses.shape[3:]
        # [types, column * row, B, H, W] -> [B, H, W, types, row, column]
        poses = ops.reshape(poses, (types, self.width, self.rows, -1))
        poses = ops.reshape(ops.transpose(poses, (3, 0, 2, 1)), (-1, *grid, types, *self.pose_shape))
        return poses, ops.moveaxis(activations, 0, -1)

    def get_config(self):
        return {**super().get_config(), "pose": self.pose}


class _RoutedCapsules(Routes, _PosedCapsules):
    """A layer of `types` parents whose votes are reconciled by `routing`.

    Votes are made and routed as a graph over tensors of their size; or, see `capszoo.routing.cpu`, by a routing that
    takes poses instead. A subclass says with `votes` and `_seen` how the graph comes by votes and activations, and
    with `_connections` and `_parent_grid` what the fused form needs to know of who sees whom.
    """

    def __init__(self, types, routing, pose="matrix", **kwargs):
        super().__init__(pose=pose, **kwargs)
        require_counts(types=types)
        require_routing(routing)
        self.types = types
        self.routing = routing
        # Traced once for each count, also where layers run eagerly.
        self._by_image = functools.cache(
            lambda count: compiled(self.routing.by_image(self._connections(), count))
        )

    def take_only(self, shapes):
        """See `Routes`. Errors: `ValueError` for what are no poses and activations of one static grid."""
        poses, activations = (tuple(shape) for shape in shapes)
        require_static(poses, activations)
        # Of other poses entries would become images.
        if poses[1:4] != activations[1:] or math.prod(poses[4:]) != POSE_SIDE**2:
            raise ValueError(
                f"the children must be poses [B, H, W, types, ...] of {POSE_SIDE**2} numbers each and activations "
                f"[B, H, W, types]. Received shapes: {poses} and {activations}"
            )
        super().take_only(shapes)

    @property
    def routes_by_image(self):
        """Whether the graph goes through a batch image by image."""
        return self.routing.routes_by_image

    def _add_kernel(self, leading, deviation):
        """Transformation matrices `[*leading, width, types, width]`."""
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*leading, self.width, self.types, self.width),
            initializer=keras.initializers.TruncatedNormal(stddev=deviation),
        )

    def _matrices(self):
        """What votes are made with: the kernel, `[*leading, width, types, width]`."""
        return self.kernel

    def _transform(self, children):
        """Votes V = M W, `[..., I, types * width, N]`, of poses `[..., I, width, N]`, N = rows * positions."""
        # [..., width, types, width] -> [I, types * width, width]
        kernel = ops.reshape(self._matrices(), (-1, self.width, self.types * self.width))
        return ops.matmul(ops.swapaxes(ops.cast(kernel, children.dtype), 1, 2), children)

    def call(self, capsules, num_iterations=None, return_history=False):
        count = iteration_count(self.routing.num_iterations if num_iterations is None else num_iterations)
        route = None if return_history else self._from_poses(count)
        if route is not None:
            return self._without_votes(route, capsules)
        poses, activations = self._positions_last(capsules)
        poses, activations, *history = self.routing(
            self.votes(poses),
            self._seen(activations),
            num_iterations=count,
            return_history=return_history,
            positions_last=True,
        )
        capsules = self._capsules(poses, activations)
        # [T, I, O, B, ...] -> [T, B, ..., I, O]
        return (capsules, ops.moveaxis(history[0], (1, 2), (-2, -1))) if return_history else capsules

    def _from_poses(self, count):
        """What routes poses instead of votes here and now, compiled or as a graph, see `Routing`; or None."""
        if not isinstance(count, int) or self.routing.compute_dtype != "float32":
            return None
        if self.routing.fusible and cpu.enabled():
            return self.routing.fused(self._connections(), count)
        return self._by_image(count) if self.routing.routes_by_image else None

    def _without_votes(self, route, capsules):
        poses, activations = capsules
        # [B, H, W, types, ...] -> [B, C, ...]
        children = math.prod(activations.shape[1:])
        poses, activations = route(
            ops.cast(ops.reshape(poses, (-1, children, POSE_SIDE**2)), "float32"),
            ops.cast(ops.reshape(activations, (-1, children)), "float32"),
            ops.cast(ops.reshape(self._matrices(), (-1, self.width, self.types, self.width)), "float32"),
        )
        # [B, P, types, ...] -> [B, *grid, types, ...]
        grid = self._parent_grid()
        return (
            ops.reshape(poses, (-1, *grid, self.types, *self.pose_shape)),
            ops.reshape(activations, (-1, *grid, self.types)),
        )

    def parent_shapes(self, batch):
        """See `Routes`."""
        capsules = batch, *self._parent_grid(), self.types
        return (*capsules, *self.pose_shape), capsules

    def votes_of(self, children):
        """See `Routes`."""
        votes = self.votes(self._positions_last(children)[0])
        # [I, O, D, B, ...] -> [B, ..., I, O, D]
        return ops.moveaxis(votes, (0, 1, 2), (-3, -2, -1))

    def get_config(self):
        return {**super().get_config(), "types": self.types}


@keras.saving.register_keras_serializable(package="capszoo")
class MatrixPrimaryCapsules(Float32Outputs, _PosedCapsules):
    """The first capsules: pose and activation of every type, each linear in the feature map at its position.

        M = x A_pose
        a = 1 / (1 + exp(-(x A_activation - 1)))

    where:
      x: feature map `[B, H, W, C]`.
      M: poses `[B, H, W, types, 4, 4]`, or `[B, H, W, types, 16]` for `pose="vector"`.
      a: activations `[B, H, W, types]`, in (0, 1).
      A_pose: `pose_kernel[C, types * 16]`; A_activation: `activation_kernel[C, types]`; both truncated normal of
        standard deviation 0.5. There is no bias.

    Errors: `ValueError` for another `pose`.
    Source: Hinton et al. 2018, section 4; the shift by -1 and the standard deviations from the authors' code.
    Differs from the authors' code: it draws the activations' weights with a deviation of 3, but orders the channels
    so that they land on the last capsules, poses included; the weights of nearly all capsules have 0.5, as here.
    """

    def __init__(self, types, pose="matrix", **kwargs):
        super().__init__(pose=pose, **kwargs)
        require_counts(types=types)
        self.types = types

    def build(self, input_shape):
        for name, per_type in (("pose_kernel", POSE_SIDE**2), ("activation_kernel", 1)):
            kernel = self.add_weight(
                name=name,
                shape=(input_shape[-1], self.types * per_type),
                initializer=keras.initializers.TruncatedNormal(stddev=0.5),
            )
            setattr(self, name, kernel)

    def call(self, features):
        height, width = ops.shape(features)[1:3]
        poses = ops.cast(ops.matmul(features, self.pose_kernel), "float32")
        logits = ops.cast(ops.matmul(features, self.activation_kernel), "float32")
        poses = ops.reshape(poses, (-1, height, width, self.types, *self.pose_shape))
        return poses, ops.sigmoid(logits - 1.0)

    def compute_output_shape(self, features_shape):
        capsules = *features_shape[:3], self.types
        return (*capsules, *self.pose_shape), capsules

    def get_config(self):
        return {**super().get_config(), "types": self.types}


@keras.saving.register_keras_serializable(package="capszoo")
class ConvCapsules(_RoutedCapsules):
    """Convolutional capsules: the children in a parent's window vote for it, through one matrix per tap and type.

        V_ij = M_i W_ij                                      # section 2
        M_j, a_j = routing(V_ij, a_i)

    where:
      M_i, a_i: children, a pair of poses and activations, see above.
      W_ij: `kernel[K, K, types of children, 4, types, 4]` (vector poses: 16 instead of 4), truncated normal of
        standard deviation 0.3; the same at all positions.
      M_j, a_j: parents, `types` at each position of the grid that windows of `kernel_size` and `strides` without
        padding leave.
      routing: a `Routing`, which is given the neighbourhood; with `EMRouting` and `VariationalBayesRouting` a child's
        parents at all positions compete.

    `return_history=True` returns `(capsules, coefficients[T, B, H', W', K * K * types of children, O])`, the types
    as the fastest axis of the children; `num_iterations` overrides the routing's own count and may be a tensor.
    Errors: `ValueError` for another `pose`, for a grid smaller than the window, and for children of other shapes.
    Source: Hinton et al. 2018, section 4; initial weights from the authors' code.
    """

    def __init__(self, types, kernel_size, strides, routing, pose="matrix", **kwargs):
        super().__init__(types, routing, pose, **kwargs)
        require_counts(kernel_size=kernel_size, strides=strides)
        self.kernel_size = kernel_size
        self.strides = strides

    def build(self, capsules_shape):
        self.take_only(capsules_shape)
        *grid, children = capsules_shape[1][1:]
        self.neighbourhood = Neighbourhood(self.kernel_size, self.strides, tuple(grid))
        self._add_kernel((self.kernel_size, self.kernel_size, children), 0.3)
        seen = self.neighbourhood.taps * children
        votes_shape = None, *self.neighbourhood.parent_grid, seen, self.types, POSE_SIDE**2
        self.build_routing(votes_shape, self.neighbourhood)

    def votes(self, poses):
        """Votes `[I, O, D, B, H', W']` of poses `[types * D, B, H, W]`; a matrix is listed column by column."""
        children, count = self.neighbourhood.unfold(poses), self.neighbourhood.taps * self.kernel.shape[2]
        # [taps, types * column * row, B, H', W'] -> [taps * types, column, row * B * H' * W']
        votes = self._transform(ops.reshape(children, (count, self.width, -1)))
        return ops.reshape(votes, (count, self.types, POSE_SIDE**2, -1, *self.neighbourhood.parent_grid))

    def _seen(self, activations):
        """Activations `[I, B, H', W']` of `[types, B, H, W]`."""
        activations = self.neighbourhood.unfold(activations)
        children = self.neighbourhood.taps * activations.shape[1]
        return ops.reshape(activations, (children, -1, *self.neighbourhood.parent_grid))

    def _connections(self):
        types = self.kernel.shape[2]
        child = self.neighbourhood.children(types)
        share = 1.0 / (np.maximum(self.neighbourhood.num_parents(), 1) * self.types)
        matrix = np.arange(child.shape[1])
        addition = np.zeros((len(matrix), POSE_SIDE**2))
        return connections(child, matrix, addition, np.repeat(share.ravel(), types)[child])

    def _parent_grid(self):
        return self.neighbourhood.parent_grid

    def get_config(self):
        return {**super().get_config(), "kernel_size": self.kernel_size, "strides": self.strides}


class _ClassCapsules(_RoutedCapsules):
    """Parents without a grid, that every capsule below votes for."""

    def _seen(self, activations):
        """Activations `[I, B]` of `[types, B, H, W]`."""
        activations = ops.moveaxis(activations, (2, 3), (0, 1))
        return ops.reshape(activations, (math.prod(activations.shape[:3]), -1))

    def _parent_grid(self):
        return ()


@keras.saving.register_keras_serializable(package="capszoo")
class SharedClassCapsules(_ClassCapsules):
    """Class capsules that every capsule below votes for; capsules of one type share one matrix per class.

        V_ij = M_i W_type(i)j
        V_ij[entries] += coordinates of i                    # coordinate addition, section 4
        M_j, a_j = routing(V_ij, a_i)

    where:
      M_i, a_i: children, a pair of poses `[B, H, W, types, ...]` and activations `[B, H, W, types]`.
      W: `kernel[types of children, 4, types, 4]` (vector poses: 16 instead of 4), truncated normal of standard
        deviation 0.01.
      M_j, a_j: parents, a pair of poses `[B, types, ...]` and activations `[B, types]`; one type per class.
      coordinates: the rows' and the columns' coordinates, two sequences of numbers, H and W long; None adds none.
      entries: which two entries of the vote get row and column, in a matrix listed row by row: 3 and 7 are the first
        two of the right-hand column.
      routing: an `EMRouting`, or another `Routing`.

    `return_history=True` returns `(capsules, coefficients[T, B, H * W * types of children, O])`, the types as the
    fastest axis of the children; `num_iterations` overrides the routing's own count and may be a tensor.
    Errors: `ValueError` for another `pose`, for `entries` that are not two of a pose's, for coordinates that are not as
    many as rows and columns, and for children of other shapes.
    Source: Hinton et al. 2018, section 4; initial weights from the authors' code.
    """

    def __init__(self, types, routing, coordinates=None, entries=(3, 7), pose="matrix", **kwargs):
        super().__init__(types, routing, pose, **kwargs)
        if coordinates is not None:
            coordinates = tuple(tuple(map(float, axis)) for axis in coordinates)
        self.coordinates, self.entries = coordinates, tuple(map(int, entries))
        if not len(set(self.entries)) == len(self.entries) == 2 or not all(
            0 <= entry < POSE_SIDE**2 for entry in self.entries
        ):
            raise ValueError(
                f"entries must be two different ones of {POSE_SIDE**2}. Received: {self.entries}"
            )

    def build(self, capsules_shape):
        self.take_only(capsules_shape)
        *grid, children = capsules_shape[1][1:]
        if self.coordinates is not None and [len(axis) for axis in self.coordinates] != grid:
            lengths = [len(axis) for axis in self.coordinates]
            raise ValueError(
                f"coordinates of {grid[0]} rows and {grid[1]} columns are needed. Received: {lengths}"
            )
        self.grid = tuple(grid)
        self._add_kernel((children,), 0.01)
        seen = math.prod(grid) * children
        self.build_routing((None, seen, self.types, POSE_SIDE**2))

    def votes(self, poses):
        """Votes `[I, O, D, B]` of poses `[types * D, B, H, W]`; a matrix is listed column by column."""
        positions, types = math.prod(poses.shape[2:]), self.kernel.shape[0]
        # [types * D, B, H, W] -> [H, W, types * D, B] -> [H * W, types, column, row * B]
        children = ops.reshape(ops.moveaxis(poses, (2, 3), (0, 1)), (positions, types, self.width, -1))
        votes = self._transform(children)
        # [H * W, types, O * column, row * B] -> [H * W, types, O, D, B]
        votes = ops.reshape(votes, (positions, types, self.types, POSE_SIDE**2, -1))
        if self.coordinates is not None:
            addition = ops.cast(self._addition(), votes.dtype)
            votes = votes + ops.reshape(addition, (positions, 1, 1, POSE_SIDE**2, 1))
        return ops.reshape(votes, (positions * types, self.types, POSE_SIDE**2, -1))

    def _addition(self):
        """What is added to the votes of each position: an array `[H, W, D]`."""
        rows, columns = self.coordinates
        addition = np.zeros((len(rows), len(columns), POSE_SIDE**2), "float32")
        # The entry at (row, column) of a matrix stands at (column, row) in a list of its columns.
        row_entry, column_entry = (
            entry % self.width * self.rows + entry // self.width for entry in self.entries
        )
        addition[..., row_entry] = np.asarray(rows)[:, None]
        addition[..., column_entry] = np.asarray(columns)[None, :]
        return addition

    def _connections(self):
        positions, types = math.prod(self.grid), self.kernel.shape[0]
        children = positions * types
        addition = np.zeros((children, POSE_SIDE**2))
        if self.coordinates is not None:
            # A matrix listed column by column -> row by row.
            rows = self._addition().reshape(positions, self.width, self.rows).swapaxes(1, 2)
            addition = np.repeat(rows.reshape(positions, -1), types, axis=0)
        matrix = np.tile(np.arange(types), positions)
        uniform = np.full((1, children), 1.0 / self.types)
        return connections(np.arange(children)[None], matrix, addition, uniform)

    def get_config(self):
        return {**super().get_config(), "coordinates": self.coordinates, "entries": self.entries}
