"""The decoder that reconstructs an image from capsules."""

import math

import keras
from keras import ops

from capszoo.layers.arguments import require_shape


@keras.saving.register_keras_serializable(package="capszoo")
class Decoder(keras.layers.Layer):
    """Three dense layers from masked capsules to pixels: ReLU, ReLU, sigmoid.

    where:
      masked: `[B, N, F]`.
      reconstruction: `[B, N, *image_shape]`, in [0, 1], float32.

    Errors: `ValueError` for capsules of another rank, and for an unknown N or F.
    Source: Sabour et al. 2017, figure 2; initial weights from the authors' code (truncated normal 0.1, biases 0.1).
    """

    def __init__(self, image_shape, hidden=(512, 1024), **kwargs):
        super().__init__(**kwargs)
        self.image_shape = tuple(image_shape)
        self.hidden = tuple(hidden)
        self.stack = [
            _dense(units, "relu", f"hidden{i}", self.dtype_policy)
            for i, units in enumerate(self.hidden, start=1)
        ]
        # The sigmoid in float32: half precision would quantise light greys.
        self.stack.append(_dense(math.prod(self.image_shape), "sigmoid", "pixels", "float32"))

    def build(self, input_shape):
        require_shape("masked capsules", input_shape, "[B, N, F]")
        width = input_shape[-1]
        for layer in self.stack:
            layer.build((None, width))
            width = layer.units

    def call(self, masked):
        for layer in self.stack:
            masked = layer(masked)
        return ops.reshape(masked, (-1, masked.shape[1], *self.image_shape))

    def get_config(self):
        return {**super().get_config(), "image_shape": self.image_shape, "hidden": self.hidden}


def _dense(units, activation, name, dtype):
    return keras.layers.Dense(
        units,
        activation=activation,
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.1),
        bias_initializer=keras.initializers.Constant(0.1),
        name=name,
        dtype=dtype,
    )
