"""Activations of vector capsules."""

import keras

from capszoo.routing.squash import length


@keras.saving.register_keras_serializable(package="capszoo")
class Length(keras.layers.Layer):
    """Activations `[B, O]` of capsules whose pose length is their activation: `[B, O, D]` -> sqrt(sum_d v_d^2 + 1e-7).

    Source: Sabour et al. 2017, section 2. In float32 under every dtype policy.
    """

    def __init__(self, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)

    def call(self, poses):
        return length(poses)
