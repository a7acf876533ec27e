"""The spread loss of Hinton et al. 2018 and the schedule of its margin."""

import math
import numbers

import keras
from keras import ops

from capszoo.losses.shapes import require_shape


def spread_margin(progress, schedule="linear"):
    """The margin of the spread loss when a share `progress` of the training lies behind.

        m = 0.2 + 0.7 * progress                                 # schedule="linear", section 4.1
        m = 0.2 + 0.79 / (1 + exp(-(14 * progress - 4)))         # schedule="sigmoid"

    where:
      progress: in [0, 1], a number or a tensor.
      m: from 0.2 to 0.9, or from 0.214 to 0.99.

    Errors: `ValueError` for another schedule.
    Source: Hinton et al. 2018, section 4.1; "sigmoid" from the authors' code.
    Differs from the authors' code: it counts steps, 0.2 + 0.79 * sigmoid(min(10, step / 50,000 - 4)), which a shorter
    run never gets far with; here those 700,000 steps are the whole run, whatever its length.
    """
    if schedule == "linear":
        return 0.2 + 0.7 * progress
    if schedule == "sigmoid":
        exp = math.exp if isinstance(progress, numbers.Real) else ops.exp
        return 0.2 + 0.79 / (1.0 + exp(4.0 - 14.0 * progress))
    raise ValueError(f"schedule must be 'linear' or 'sigmoid'. Received: {schedule!r}")


@keras.saving.register_keras_serializable(package="capszoo")
class SpreadLoss(keras.losses.Loss):
    """Penalises every wrong class that is not less active than the right one by at least a margin.

        L_i = max(0, m - (a_t - a_i))^2                          # equation 3
        loss = sum_{i != t} L_i                                  # scaling="paper"
        loss = sum_{i != t} L_i / O                              # scaling="official"

    where:
      m, t: margin and right class, both in the targets `[B, O]`: m at class t, 0 elsewhere. A margin that grows with
        the training thus comes with the batch, see `spread_margin`; plain one-hot targets are the margin 1. Targets
        that share m out among several classes give the mixture of these classes' losses; without a class the loss is 0.
      a: activations `[B, O]`, in [0, 1].
      loss: `[B]`; Keras averages it over the batch.

    Errors: `ValueError` for another scaling, and for targets of another shape than the activations.
    Source: Hinton et al. 2018, equation 3; "official" is the mean over classes of the authors' code.
    """

    def __init__(self, scaling="paper", name="spread_loss", **kwargs):
        super().__init__(name=name, **kwargs)
        if scaling not in ("paper", "official"):
            raise ValueError(f"scaling must be 'paper' or 'official'. Received: {scaling!r}")
        self.scaling = scaling

    def call(self, targets, activations):
        targets = ops.cast(targets, activations.dtype)
        require_shape(targets, activations)
        margin = ops.sum(targets, axis=-1, keepdims=True)
        # [B, t, i]: how far each class i stays behind each t, as if t were the right one.
        gap = activations[:, :, None] - activations[:, None, :]
        wrong = 1.0 - ops.eye(activations.shape[-1], dtype=activations.dtype)
        missing = wrong * ops.square(ops.relu(margin[:, :, None] - gap))
        shares = targets / ops.where(margin == 0, 1.0, margin)
        per_class = ops.sum(shares[:, :, None] * missing, axis=1)
        if self.scaling == "official":
            return ops.mean(per_class, axis=-1)
        return ops.sum(per_class, axis=-1)

    def get_config(self):
        return {**super().get_config(), "scaling": self.scaling}
