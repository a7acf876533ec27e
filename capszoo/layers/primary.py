"""The layer that turns a feature map into the first capsules."""

import keras
from keras import ops

from capszoo.layers import fourier
from capszoo.layers.arguments import require_counts
from capszoo.layers.outputs import Float32Outputs, convolved
from capszoo.routing import cpu
from capszoo.routing.squash import squash


@keras.saving.register_keras_serializable(package="capszoo")
class PrimaryCapsules(Float32Outputs, keras.layers.Layer):
    """Convolutional capsules without routing: a convolution whose channels are grouped into poses.

        u = squash(scale * conv(x) + bias)

    where:
      x: feature map `[B, H, W, C]`.
      u: poses `[B, H', W', types, pose_dim]`, lengths in [0, 1).
      kernel: `[K, K, C, types * pose_dim]`, truncated normal of standard deviation 0.1.
      bias: `[types, pose_dim]`, initially 0.1.
      scale: factor on the convolution before bias and squash; 1 is the paper's text, 1 / types the authors' code.

    Squash runs in float32 under every dtype policy, and poses leave in float32. On a CPU, whole batches are convolved
    by Fourier transforms where these save time, 256 channels of a 9x9 kernel of stride 2 for instance (`fourier`).
    Errors: `ValueError` for a count below one, for a padding other than "valid" or "same", and for a feature map
    smaller than the kernel.
    Source: Sabour et al. 2017, section 4 and the authors' code.
    Differs from the paper: the authors' code multiplies by softmax(0) = 1 / types before the squash, which the text
    does not mention; `scale` chooses.
    """

    def __init__(self, types, pose_dim, kernel_size, strides=1, padding="valid", scale=1.0, **kwargs):
        super().__init__(**kwargs)
        if padding not in ("valid", "same"):
            raise ValueError(f"padding must be 'valid' or 'same'. Received: {padding!r}")
        require_counts(types=types, pose_dim=pose_dim, kernel_size=kernel_size, strides=strides)
        self.types = types
        self.pose_dim = pose_dim
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding
        self.scale = scale

    def build(self, input_shape):
        size = self.kernel_size
        self.kernel = self.add_weight(
            name="kernel",
            shape=(size, size, input_shape[-1], self.types * self.pose_dim),
            initializer=keras.initializers.TruncatedNormal(stddev=0.1),
        )
        self.bias = self.add_weight(
            name="bias",
            shape=(self.types, self.pose_dim),
            initializer=keras.initializers.Constant(0.1),
            autocast=False,
        )

    def call(self, features):
        # An eager call has no symbolic shapes that would refuse it.
        self.compute_output_shape(features.shape)
        features = self._convolved(features)
        height, width = ops.shape(features)[1:3]
        # [B, H', W', types * D] -> [B, H', W', types, D]
        poses = ops.reshape(features, (-1, height, width, self.types, self.pose_dim))
        return squash(ops.cast(poses, "float32") * self.scale + ops.cast(self.bias, "float32"))

    def compute_output_shape(self, features_shape):
        batch, *sides, _ = features_shape
        sides = (convolved(side, self.kernel_size, self.strides, self.padding) for side in sides)
        return batch, *sides, self.types, self.pose_dim

    def _convolved(self, features):
        """The convolution alone, in the form that is fastest here."""

        def direct():
            options = {"strides": self.strides, "padding": self.padding}
            return ops.conv(features, self.kernel, data_format="channels_last", **options)

        def transformed():
            return fourier.convolve(features, self.kernel, self.strides)

        if (
            self.padding != "valid"
            or not fourier.saves(features, self.kernel, self.strides)
            or not cpu.stays_here()
        ):
            return direct()
        images = ops.shape(features)[0]
        if isinstance(images, int):
            return transformed() if images >= fourier.LEAST_IMAGES else direct()
        return ops.cond(images >= fourier.LEAST_IMAGES, transformed, direct)

    def get_config(self):
        return {
            **super().get_config(),
            "types": self.types,
            "pose_dim": self.pose_dim,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "scale": self.scale,
        }
