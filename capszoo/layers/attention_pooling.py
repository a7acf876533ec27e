"""Capsules that pool features of the whole image, each by attention weights of its own."""

import keras
from keras import ops

from capszoo.layers.arguments import require_counts, require_shape


@keras.saving.register_keras_serializable(package="capszoo")
class AttentionPooling(keras.layers.Layer):
    """Numbers about each of N capsules: means over the positions of a grid, weighted by the capsule's own attention.

        f'_p = f_p + e_p
        values_n = b_n + sum_p w_np * (V_n f'_p),   w_n = softmax over p of (a_n . f'_p)

    where:
      f_p: features `[B, H, W, F]` at position p; e_p: learned, `[H, W, F]`,
        without which a mean is the same wherever the features are.
      values: `[B, N, D]`, float32.

    Errors: `ValueError` for features of another rank, and for an unknown H, W or F.
    Source: Smith et al. 2020, appendix B ("attentive pooling"), after Kosiorek et al. 2019.
    """

    def __init__(
        self,
        num_capsules,
        num_values,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        require_counts(num_capsules=num_capsules, num_values=num_values)
        self.num_capsules = num_capsules
        self.num_values = num_values
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, features_shape):
        require_shape("features", features_shape, "[B, H, W, F]")
        # Another grid would be broadcast.
        self.input_spec = keras.InputSpec(shape=(None, *features_shape[1:]))
        height, width, features = features_shape[1:]
        capsules, values = self.num_capsules, self.num_values
        self.places = self.add_weight(
            name="places",
            shape=(height, width, features),
            initializer=keras.initializers.RandomNormal(stddev=0.1),
        )
        self.kernel = self.add_weight(
            name="kernel", shape=(features, capsules * values), initializer=self.kernel_initializer
        )
        self.attention = self.add_weight(
            name="attention", shape=(features, capsules), initializer="glorot_uniform"
        )
        self.bias = self.add_weight(name="bias", shape=(capsules, values), initializer=self.bias_initializer)

    def call(self, features):
        features = features + self.places
        # [B, H, W, F] -> [B, P, F]
        positions = features.shape[1] * features.shape[2]
        features = ops.reshape(features, (-1, positions, features.shape[3]))
        values = ops.reshape(
            ops.matmul(features, self.kernel), (-1, positions, self.num_capsules, self.num_values)
        )
        weights = ops.softmax(ops.cast(ops.matmul(features, self.attention), "float32"), axis=1)
        pooled = ops.sum(ops.expand_dims(weights, -1) * ops.cast(values, "float32"), axis=1)
        return pooled + ops.cast(self.bias, "float32")

    def get_config(self):
        return {
            **super().get_config(),
            "num_capsules": self.num_capsules,
            "num_values": self.num_values,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }
