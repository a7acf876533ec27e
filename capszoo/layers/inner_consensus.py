"""Capsule layers of Faria 2019: affine primary capsules, and votes of matrices with norm one."""

import math

import keras
import numpy as np
from keras import ops

from capszoo.layers.matrix import (
    POSE_SIDE,
    ConvCapsules,
    MatrixPrimaryCapsules,
    _ClassCapsules,
    _RoutedCapsules,
)
from capszoo.routing.connections import connections

# Under the root of the norm of a matrix: away from zero, where it has no gradient (author's code).
NORM_FLOOR = 1e-5


def _unit_norm(matrices, axes):
    """`matrices` divided by their Frobenius norms over `axes`."""
    return matrices * ops.rsqrt(ops.sum(ops.square(matrices), axis=axes, keepdims=True) + NORM_FLOOR)


@keras.saving.register_keras_serializable(package="capszoo")
class AffinePrimaryCapsules(MatrixPrimaryCapsules):
    """The first capsules: pose and activation of every type, each affine in the feature map at its position.

        M = x A_pose + b_pose                                # normalise=False
        M = U / |U|_F,  U = max(0, x A_pose + b_pose)        # normalise=True
        a = 1 / (1 + exp(-(x A_activation + b_activation)))

    where:
      x: feature map `[B, H, W, C]`.
      M: poses `[B, H, W, types, 4, 4]`; a: activations `[B, H, W, types]`, in (0, 1).
      A_pose, A_activation: `pose_kernel[C, types * 16]`, `activation_kernel[C, types]`, Glorot's; b_pose,
        b_activation: `pose_bias[types * 16]`, `activation_bias[types]`, at first zero.

    Source: Faria 2019, Table 1, whose count of parameters has the biases; normalised poses from the author's code,
    where they are not mentioned in the paper.
    Differs from the author's code: 1e-5 stands under the root of |U|_F, not 1e-7 beside it.
    """

    def __init__(self, types, normalise=False, **kwargs):
        super().__init__(types, **kwargs)
        self.normalise = normalise

    def build(self, input_shape):
        for name, per_type in (("pose", POSE_SIDE**2), ("activation", 1)):
            kernel = self.add_weight(name=f"{name}_kernel", shape=(input_shape[-1], self.types * per_type))
            bias = self.add_weight(name=f"{name}_bias", shape=(self.types * per_type,), initializer="zeros")
            setattr(self, f"{name}_kernel", kernel)
            setattr(self, f"{name}_bias", bias)

    def call(self, features):
        height, width = ops.shape(features)[1:3]
        poses = ops.cast(ops.matmul(features, self.pose_kernel) + self.pose_bias, "float32")
        logits = ops.cast(ops.matmul(features, self.activation_kernel) + self.activation_bias, "float32")
        poses = ops.reshape(poses, (-1, height, width, self.types, *self.pose_shape))
        if self.normalise:
            poses = _unit_norm(ops.relu(poses), tuple(range(-len(self.pose_shape), 0)))
        return poses, ops.sigmoid(logits)

    def get_config(self):
        return {**super().get_config(), "normalise": self.normalise}


class _NormalisedVotes(_RoutedCapsules):
    """Votes whose matrices have the Frobenius norm one, V = M W / |W|_F (equation 1)."""

    def _add_kernel(self, leading, deviation):
        """Transformation matrices `[*leading, width, types, width]`, near the identity (author's code)."""

        def near_identity(shape, dtype=None):
            # Its own seed: Keras' global generator cannot be made where a layer is built inside another.
            noise = keras.initializers.RandomUniform(-0.1, 0.1)(shape, dtype=dtype)
            # [width, width] -> [width, 1, width]
            return noise + ops.expand_dims(ops.eye(self.width, dtype=dtype), 1)

        shape = (*leading, self.width, self.types, self.width)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=near_identity)

    def _matrices(self):
        return _unit_norm(ops.cast(self.kernel, "float32"), (-3, -1))


@keras.saving.register_keras_serializable(package="capszoo")
class NormalisedConvCapsules(_NormalisedVotes, ConvCapsules):
    """Convolutional capsules, see `ConvCapsules`, whose transformations neither stretch nor shrink as they learn.

        V_ij = M_i W_ij / |W_ij|_F                           # equation 1
        M_j, a_j = routing(V_ij, a_i)

    where:
      W_ij: `kernel[K, K, types of children, 4, types, 4]`, at first the identity with noise within 0.1.
      |W|_F: sqrt(sum of squares + 1e-5).

    Source: Faria 2019, equation 1; initial weights from the author's code.
    Differs from the paper: matrices stand on the right of poses. With all poses and matrices transposed it is the
    paper's product. Differs from the author's code: it adds 1e-6 to |W|_F once more, outside the root.
    """


@keras.saving.register_keras_serializable(package="capszoo")
class NormalisedClassCapsules(_NormalisedVotes, _ClassCapsules):
    """Class capsules that every capsule below votes for, each through a matrix of its own for every class.

        V_ij = M_i W_ij / |W_ij|_F                           # equation 1
        M_j, a_j = routing(V_ij, a_i)

    where:
      M_i, a_i: children, a pair of poses `[B, H, W, types, 4, 4]` and activations `[B, H, W, types]`.
      W_ij: `kernel[H, W, types of children, 4, types, 4]`, at first the identity with noise within 0.1; not shared
        by positions.
      M_j, a_j: parents, a pair of poses `[B, types, 4, 4]` and activations `[B, types]`; one type per class.

    `return_history=True` returns `(capsules, coefficients[T, B, H * W * types of children, O])`, the types as the
    fastest axis of the children; `num_iterations` overrides the routing's own count and may be a tensor.
    Source: Faria 2019, Table 1 ("flatten") and equation 1; matrices of their own from the author's code, and from the
    paper's count of parameters.
    Differs from the paper and the author's code: as `NormalisedConvCapsules`.
    """

    def build(self, capsules_shape):
        self.take_only(capsules_shape)
        *grid, children = capsules_shape[1][1:]
        self._add_kernel((*grid, children), None)
        self.build_routing((None, math.prod(grid) * children, self.types, POSE_SIDE**2))

    def votes(self, poses):
        """Votes `[I, O, D, B]` of poses `[types * D, B, H, W]`; a matrix is listed column by column."""
        count = math.prod(self.kernel.shape[:3])
        # [types * D, B, H, W] -> [H, W, types * D, B] -> [I, column, row * B]
        children = ops.reshape(ops.moveaxis(poses, (2, 3), (0, 1)), (count, self.width, -1))
        return ops.reshape(self._transform(children), (count, self.types, POSE_SIDE**2, -1))

    def _connections(self):
        children = math.prod(self.kernel.shape[:3])
        addition = np.zeros((children, POSE_SIDE**2))
        uniform = np.full((1, children), 1.0 / self.types)
        return connections(np.arange(children)[None], np.arange(children), addition, uniform)
