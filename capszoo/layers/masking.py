"""Masks that pass only chosen capsules on to the decoder."""

import keras
from keras import ops

from capszoo.layers.arguments import require_counts, require_shape


@keras.saving.register_keras_serializable(package="capszoo")
class MostActive(keras.layers.Layer):
    """Selects the `count` most active capsules: `[B, O]` activations -> one-hot rows `[B, count, O]`, longest first.

    What masks the decoder at inference, when there are no labels (Sabour et al. 2017, section 4.1). Of equal
    activations the lower index comes first. Compares in float32 under every dtype policy.
    Errors: `ValueError` for a count below one, for fewer capsules than are selected, and for activations of another
    rank or unknown O.
    """

    def __init__(self, count=1, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        require_counts(count=count)
        self.count = count

    def call(self, activations):
        require_shape("activations", activations.shape, "[B, O]")
        if self.count > activations.shape[-1]:
            raise ValueError(f"{self.count} capsules cannot be selected. Received: {activations.shape[-1]}")
        _, indices = ops.top_k(activations, self.count)
        return ops.one_hot(indices, activations.shape[-1], dtype="float32")

    def get_config(self):
        return {**super().get_config(), "count": self.count}


@keras.saving.register_keras_serializable(package="capszoo")
class MaskCapsules(keras.layers.Layer):
    """Keeps one capsule per selection and zeroes the others.

        masked[b, n, o * D + d] = selection[b, n, o] * poses[b, o, d]

    where:
      poses: `[B, O, D]`.
      selection: `[B, N, O]`, one-hot rows: labels in training, the most active capsules at inference.
      masked: `[B, N, O * D]`.

    Errors: `ValueError` for poses or a selection of another rank or of unknown sizes, and for a selection of other
    capsules.
    Source: Sabour et al. 2017, section 4.1; N = 2 decodes the two digits of MultiMNIST one at a time (section 6).
    """

    def call(self, poses, selection):
        require_shape("poses", poses.shape, "[B, O, D]")
        capsules, dimensions = poses.shape[-2:]
        # Of rank two every image's would meet every other's poses.
        layout = f"[B, N, {capsules}]"
        require_shape("the selection", selection.shape, layout)
        if selection.shape[-1] != capsules:
            raise ValueError(f"the selection must be {layout}. Received shape: {tuple(selection.shape)}")
        selection = ops.cast(selection, poses.dtype)
        # [B, N, O, 1] * [B, 1, O, D] -> [B, N, O, D]
        masked = ops.expand_dims(selection, -1) * ops.expand_dims(poses, 1)
        return ops.reshape(masked, (-1, selection.shape[1], capsules * dimensions))
