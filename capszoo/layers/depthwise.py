"""Primary capsules of a depthwise convolution."""

import math

import keras
from keras import ops

from capszoo.layers.arguments import require_counts
from capszoo.layers.outputs import Float32Outputs, convolved
from capszoo.routing.squash import exponential_squash


@keras.saving.register_keras_serializable(package="capszoo")
class DepthwisePrimaryCapsules(Float32Outputs, keras.layers.Layer):
    """Capsules each number of whose poses looks at one channel of the features.

        u = squash(depthwise(x) + bias)

    where:
      x: feature map `[B, H, W, types * pose_dim]`.
      u: poses `[B, H', W', types, pose_dim]`, lengths in [0, 1); padding is "valid".
      squash: (1 - exp(-||s||)) * s / ||s||, see `exponential_squash`.
      kernel: `[K, K, types * pose_dim, 1]`, uniform of the limit sqrt(6 / (K^2 (1 + types * pose_dim))), which is that
        of the authors' grouped convolution.
      bias: `[types, pose_dim]`, initially zero.

    Squash runs in float32 under every dtype policy, and poses leave in float32.
    Errors: `ValueError` for features of another number of channels, and for fewer positions than the kernel has.
    Source: Mazzia, Salvetti and Chiaberge 2021, "Efficient-CapsNet", section "Primary capsules".
    """

    def __init__(self, types, pose_dim, kernel_size, strides=1, **kwargs):
        super().__init__(**kwargs)
        require_counts(types=types, pose_dim=pose_dim, kernel_size=kernel_size, strides=strides)
        self.types = types
        self.pose_dim = pose_dim
        self.kernel_size = kernel_size
        self.strides = strides

    def build(self, input_shape):
        size, channels = self.kernel_size, self.types * self.pose_dim
        if input_shape[-1] != channels:
            raise ValueError(
                f"{channels} channels are needed, {self.types} types of {self.pose_dim} numbers. "
                f"Received shape: {tuple(input_shape)}"
            )
        limit = math.sqrt(6.0 / (size**2 * (1 + channels)))
        self.kernel = self.add_weight(
            name="kernel",
            shape=(size, size, channels, 1),
            initializer=keras.initializers.RandomUniform(-limit, limit),
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.types, self.pose_dim), initializer="zeros", autocast=False
        )

    def call(self, features):
        # An eager call has no symbolic shapes that would refuse it.
        self.compute_output_shape(features.shape)
        options = {"strides": self.strides, "data_format": "channels_last"}
        features = ops.depthwise_conv(features, self.kernel, **options)
        height, width = ops.shape(features)[1:3]
        # [B, H', W', types * D] -> [B, H', W', types, D]
        poses = ops.reshape(features, (-1, height, width, self.types, self.pose_dim))
        return exponential_squash(ops.cast(poses, "float32") + ops.cast(self.bias, "float32"))

    def compute_output_shape(self, features_shape):
        batch, *sides, _ = features_shape
        sides = (convolved(side, self.kernel_size, self.strides, "valid") for side in sides)
        return batch, *sides, self.types, self.pose_dim

    def get_config(self):
        return {
            **super().get_config(),
            "types": self.types,
            "pose_dim": self.pose_dim,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
        }
