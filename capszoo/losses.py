"""Losses of the papers, as functions of targets and model outputs, one value per image."""

import math

import keras
from keras import ops

RECONSTRUCTION_WEIGHT = 0.0005


@keras.saving.register_keras_serializable(package="capszoo")
class MarginLoss(keras.losses.Loss):
    """Asks of each class capsule to be long where its class is present and short where it is not.

        L_k = T_k * max(0, 0.9 - a_k)^2 + 0.5 * (1 - T_k) * max(0, a_k - 0.1)^2          # equation 4
        loss = sum_k L_k                          # scaling="paper"
        loss = mean_k L_k / 2                     # scaling="official"

    where:
      T_k: targets `[B, O]`, 1 for classes in the image, else 0; several may be 1.
      a_k: activations `[B, O]`, in [0, 1].
      loss: `[B]`; Keras averages it over the batch.

    Errors: `ValueError` for another scaling.
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
        present = targets * ops.square(ops.relu(0.9 - activations))
        absent = 0.5 * (1.0 - targets) * ops.square(ops.relu(activations - 0.1))
        per_class = present + absent
        if self.scaling == "official":
            return ops.mean(per_class, axis=-1) / 2
        return ops.sum(per_class, axis=-1)

    def get_config(self):
        return {**super().get_config(), "scaling": self.scaling}


@keras.saving.register_keras_serializable(package="capszoo")
class ReconstructionLoss(keras.losses.Loss):
    """Squared error of reconstructions, summed over everything but the batch, times a weight.

        loss = weight * sum_{n, pixels} (x - x_hat)^2

    where:
      x, x_hat: `[B, ..., H, W, C]`, in [0, 1]; several reconstructions of one image add up.
      weight: 0.0005 beside a margin loss; 1 where nothing else is asked for (Rawlinson et al. 2018).
      loss: `[B]`; Keras averages it over the batch.

    Errors: `ValueError` for images of another shape than the reconstructions.
    Source: Sabour et al. 2017, section 4.1; for MultiMNIST section 6.
    """

    def __init__(self, weight=RECONSTRUCTION_WEIGHT, name="reconstruction_loss", **kwargs):
        super().__init__(name=name, **kwargs)
        self.weight = weight

    def call(self, images, reconstructions):
        # Unequal shapes would broadcast, and compare images with reconstructions of other images.
        if tuple(images.shape[1:]) != tuple(reconstructions.shape[1:]):
            raise ValueError(
                f"images must have the shape of the reconstructions, {reconstructions.shape}. Received: {images.shape}"
            )
        axes = tuple(range(1, len(reconstructions.shape)))
        return self.weight * ops.sum(ops.square(images - reconstructions), axis=axes)

    def get_config(self):
        return {**super().get_config(), "weight": self.weight}


def spread_margin(progress, schedule="linear"):
    """The margin of the spread loss when a share `progress` of the training lies behind.

        m = 0.2 + 0.7 * progress                                 # schedule="linear", section 4.1
        m = 0.2 + 0.79 / (1 + exp(-(14 * progress - 4)))         # schedule="sigmoid"

    where:
      progress: in [0, 1].
      m: from 0.2 to 0.9, or from 0.214 to 0.99.

    Errors: `ValueError` for another schedule.
    Source: Hinton et al. 2018, section 4.1; "sigmoid" from the authors' code.
    Differs from the authors' code: it counts steps, 0.2 + 0.79 * sigmoid(min(10, step / 50,000 - 4)), which a shorter
    run never gets far with; here those 700,000 steps are the whole run, whatever its length.
    """
    if schedule == "linear":
        return 0.2 + 0.7 * progress
    if schedule == "sigmoid":
        return 0.2 + 0.79 / (1.0 + math.exp(4.0 - 14.0 * progress))
    raise ValueError(f"schedule must be 'linear' or 'sigmoid'. Received: {schedule!r}")


@keras.saving.register_keras_serializable(package="capszoo")
class SpreadLoss(keras.losses.Loss):
    """Asks of every wrong class to be less active than the right one, by a margin at least.

        L_i = max(0, m - (a_t - a_i))^2                          # equation 3
        loss = sum_{i != t} L_i                                  # scaling="paper"
        loss = sum_{i != t} L_i / O                              # scaling="official"

    where:
      m, t: margin and right class, both in the targets `[B, O]`: m at class t, 0 elsewhere. A margin that grows with
        the training thus comes with the batch, see `spread_margin`; plain one-hot targets are the margin 1.
      a: activations `[B, O]`, in [0, 1].
      loss: `[B]`; Keras averages it over the batch.

    Errors: `ValueError` for another scaling.
    Source: Hinton et al. 2018, equation 3; "official" is the mean over classes of the authors' code.
    """

    def __init__(self, scaling="paper", name="spread_loss", **kwargs):
        super().__init__(name=name, **kwargs)
        if scaling not in ("paper", "official"):
            raise ValueError(f"scaling must be 'paper' or 'official'. Received: {scaling!r}")
        self.scaling = scaling

    def call(self, targets, activations):
        targets = ops.cast(targets, activations.dtype)
        margin = ops.max(targets, axis=-1, keepdims=True)
        right = ops.cast(targets > 0, activations.dtype)
        gap = ops.sum(right * activations, axis=-1, keepdims=True) - activations
        per_class = (1.0 - right) * ops.square(ops.relu(margin - gap))
        if self.scaling == "official":
            return ops.mean(per_class, axis=-1)
        return ops.sum(per_class, axis=-1)

    def get_config(self):
        return {**super().get_config(), "scaling": self.scaling}


@keras.saving.register_keras_serializable(package="capszoo")
class ActivationCrossEntropy(keras.losses.Loss):
    """Cross-entropy of a softmax over the logits of activations.

        loss = -log( exp(x_t) / sum_i exp(x_i) ),   x = log(a / (1 - a))

    where:
      a: activations `[B, O]`, in [0, 1]; within 1e-6 of either end they are clipped.
      t: the right class, in one-hot targets `[B, O]`.
      loss: `[B]`; Keras averages it over the batch.

    Source: Hinton et al. 2018, Table 1, which names the loss "CrossEnt" without saying of what; x is what the
    logistic function makes the activation of.
    """

    def __init__(self, name="activation_cross_entropy", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, targets, activations):
        activations = ops.clip(activations, 1e-6, 1.0 - 1e-6)
        logits = ops.log(activations) - ops.log(1.0 - activations)
        return keras.losses.categorical_crossentropy(targets, logits, from_logits=True)
