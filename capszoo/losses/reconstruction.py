"""How far reconstructions are from images."""

import keras
from keras import ops

from capszoo.losses.shapes import require_shape

RECONSTRUCTION_WEIGHT = 0.0005


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
        require_shape(images, reconstructions, "images")
        axes = tuple(range(1, len(reconstructions.shape)))
        return self.weight * ops.sum(ops.square(images - reconstructions), axis=axes)

    def get_config(self):
        return {**super().get_config(), "weight": self.weight}
