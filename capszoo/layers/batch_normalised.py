"""Capsule layers of De Sousa Ribeiro et al. 2020: poses and logits of activations are normalised over the batch."""

import math

import keras
from keras import ops

from capszoo.layers.matrix import (
    POSE_SIDE,
    ConvCapsules,
    MatrixPrimaryCapsules,
    SharedClassCapsules,
    _PosedCapsules,
    _RoutedCapsules,
)

# Of all batch normalisations of the paper's network: the defaults of the authors' framework, in Keras' terms.
BATCH_NORMALISATION = {"momentum": 0.9, "epsilon": 1e-5}


class _BatchNormalised(_PosedCapsules):
    """Capsules with one mean and one variance per type for all entries of the poses, and one for the logits."""

    def _add_normalisations(self, types, grid, learned):
        """Batch normalisations of poses and of logits; with a scale and a shift per type where `learned`."""
        kinds = {"pose_normalisation": self.pose_shape, "activation_normalisation": ()}
        for name, entries in kinds.items():
            layer = keras.layers.BatchNormalization(
                axis=-1 - len(entries),
                center=learned,
                scale=learned,
                dtype="float32",
                name=name,
                **BATCH_NORMALISATION,
            )
            layer.build((None, *grid, types, *entries))
            setattr(self, name, layer)

    def _normalised(self, poses, logits, training):
        """Poses and activations in (0, 1)."""
        poses = self.pose_normalisation(poses, training=training)
        return poses, ops.sigmoid(self.activation_normalisation(logits, training=training))


@keras.saving.register_keras_serializable(package="capszoo")
class BatchNormalisedPrimaryCapsules(_BatchNormalised, MatrixPrimaryCapsules):
    """The first capsules: pose and activation of every type, linear in the feature map at its position, normalised.

        M = g_pose * norm(x A_pose) + b_pose
        a = 1 / (1 + exp(-(g_activation * norm(x A_activation) + b_activation)))

    where:
      x: feature map `[B, H, W, C]`.
      M: poses `[B, H, W, types, 4, 4]`; a: activations `[B, H, W, types]`, in (0, 1).
      A_pose, A_activation: `pose_kernel[C, types * 16]`, `activation_kernel[C, types]`, Glorot's.
      norm: subtracts the mean and divides by the standard deviation over the batch, all positions and, of poses, all
        16 entries; g, b: a scale and a shift for each type.

    Errors: `ValueError` for another `pose`.
    Source: De Sousa Ribeiro, Leontidis and Kollias 2020, the authors' code.
    """

    def build(self, input_shape):
        for name, per_type in (("pose_kernel", POSE_SIDE**2), ("activation_kernel", 1)):
            kernel = self.add_weight(name=name, shape=(input_shape[-1], self.types * per_type))
            setattr(self, name, kernel)
        self._add_normalisations(self.types, input_shape[1:3], learned=True)

    def call(self, features, training=None):
        height, width = ops.shape(features)[1:3]
        poses = ops.cast(ops.matmul(features, self.pose_kernel), "float32")
        logits = ops.cast(ops.matmul(features, self.activation_kernel), "float32")
        poses = ops.reshape(poses, (-1, height, width, self.types, *self.pose_shape))
        return self._normalised(poses, logits, training)


class _BatchNormalisedParents(_BatchNormalised, _RoutedCapsules):
    """Parents whose poses and logits, as routing returns them, are normalised."""

    def __init__(self, types, *arguments, **keywords):
        super().__init__(types, *arguments, **keywords)
        if not self.routing.logits:
            raise ValueError("a routing that returns logits is needed. Received: logits=False")

    def build(self, capsules_shape):
        super().build(capsules_shape)
        self._add_normalisations(self.types, self._parent_grid(), learned=False)

    def _add_kernel(self, leading, deviation):
        """Transformation matrices `[*leading, width, types, width]`, Glorot's with all entries of all taps as fans."""
        *taps, children = leading
        fans = math.prod(taps) * POSE_SIDE**2 * (children + self.types)
        limit = math.sqrt(6.0 / fans)
        shape = (*leading, self.width, self.types, self.width)
        initializer = keras.initializers.RandomUniform(-limit, limit)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=initializer)

    def centres_of(self, children, iteration):
        """See `Routes`: before they are normalised."""
        return super().call(children, iteration)[0]

    def call(self, capsules, num_iterations=None, return_history=False, training=None):
        parents = super().call(capsules, num_iterations, return_history)
        if return_history:
            parents, history = parents
            return self._normalised(*parents, training), history
        return self._normalised(*parents, training)


@keras.saving.register_keras_serializable(package="capszoo")
class BatchNormalisedConvCapsules(_BatchNormalisedParents, ConvCapsules):
    """Convolutional capsules, see `ConvCapsules`, normalised over the batch.

        V_ij = M_i W_ij
        m_j, x_j = routing(V_ij, a_i)
        M_j = norm(m_j),  a_j = 1 / (1 + exp(-norm(x_j)))

    where:
      W_ij: `kernel[K, K, types of children, 4, types, 4]`, uniform within
        sqrt(6 / (16 K^2 (types of children + types))).
      x_j: logits of activations `[B, H', W', types]`.
      norm: as in `BatchNormalisedPrimaryCapsules`, without scale and shift.
      routing: a `VariationalBayesRouting` with `logits=True`.

    Errors: `ValueError` for a routing that returns no logits, and see `ConvCapsules`.
    Source: De Sousa Ribeiro, Leontidis and Kollias 2020, the authors' code.
    """


@keras.saving.register_keras_serializable(package="capszoo")
class BatchNormalisedClassCapsules(_BatchNormalisedParents, SharedClassCapsules):
    """Class capsules that every capsule below votes for, see `SharedClassCapsules`, normalised over the batch.

        V_ij = M_i W_type(i)j
        V_ij[entries] += coordinates of i
        m_j, x_j = routing(V_ij, a_i)
        M_j = norm(m_j),  a_j = 1 / (1 + exp(-norm(x_j)))

    where:
      W: `kernel[types of children, 4, types, 4]`, uniform within sqrt(6 / (16 (types of children + types))).
      x_j: logits of activations `[B, types]`.
      norm: as in `BatchNormalisedPrimaryCapsules`, without scale and shift.
      routing: a `VariationalBayesRouting` with `logits=True`.

    Errors: `ValueError` for a routing that returns no logits, and see `SharedClassCapsules`.
    Source: De Sousa Ribeiro, Leontidis and Kollias 2020, the authors' code.
    """
