"""The margin loss of Sabour et al. 2017."""

import keras
from keras import ops

from capszoo.losses.shapes import require_shape


@keras.saving.register_keras_serializable(package="capszoo")
class MarginLoss(keras.losses.Loss):
    """Penalises class capsules that are short where their class is present, or long where it is not.

        L_k = T_k * max(0, 0.9 - a_k)^2 + 0.5 * (1 - T_k) * max(0, a_k - 0.1)^2          # equation 4
        loss = sum_k L_k                          # scaling="paper"
        loss = mean_k L_k / 2                     # scaling="official"

    where:
      T_k: targets `[B, O]`, 1 for classes in the image, else 0; several may be 1.
      a_k: activations `[B, O]`, in [0, 1].
      loss: `[B]`; Keras averages it over the batch.

    Errors: `ValueError` for another scaling, and for targets of another shape than the activations.
    Source: Sabour et al. 2017, equation 4; "official" is what the authors' code minimises. Beside the same
    reconstruction term it weighs the decoder 20 times (for ten classes) as much as the paper's scaling.
    """

    def __init__(self, scaling="paper", name="margin_loss", **kwargs):
        super().__init__(name=name, **kwargs)
        if scaling not in ("paper", "official"):
            raise ValueError(f"scaling must be 'paper' or 'official'. Received: {scaling!r}")
        self.scaling = scaling

    def call(self, targets, activations):
        targets = ops.cast(targets, activations.dtype)
        require_shape(targets, activations)
        present = targets * ops.square(ops.relu(0.9 - activations))
        absent = 0.5 * (1.0 - targets) * ops.square(ops.relu(activations - 0.1))
        per_class = present + absent
        if self.scaling == "official":
            return ops.mean(per_class, axis=-1) / 2
        return ops.sum(per_class, axis=-1)

    def get_config(self):
        return {**super().get_config(), "scaling": self.scaling}
