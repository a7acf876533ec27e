"""The evidence lower bound of generative models as losses: what pixels lack, and what the latent variables cost.

-bound = PixelSurprise(images, reconstruction) + SummedOutput(divergence)
"""

import math

import keras
import numpy as np
from keras import ops

from capszoo.models.objective import Objective


@keras.saving.register_keras_serializable(package="capszoo")
class PixelSurprise(keras.losses.Loss):
    """Minus the log likelihood of an image whose pixels are normal around a reconstruction.

        loss = -sum_pixels log N(x; x_hat, deviation^2)

    where:
      x, x_hat: `[B, H, W, C]`.
      deviation: of a pixel, in its units.
      loss: `[B]`, in nats; Keras averages it over the batch.

    Source: Smith et al. 2020, equation 7; the deviation 0.2 from appendix B.
    """

    def __init__(self, deviation=0.2, name="pixel_surprise", **kwargs):
        super().__init__(name=name, **kwargs)
        self.deviation = deviation

    def call(self, images, reconstructions):
        constant = math.log(self.deviation * math.sqrt(2 * math.pi)) * math.prod(reconstructions.shape[1:])
        squares = ops.sum(ops.square(images - reconstructions), axis=(1, 2, 3))
        return squares / (2 * self.deviation**2) + constant

    def get_config(self):
        return {**super().get_config(), "deviation": self.deviation}


@keras.saving.register_keras_serializable(package="capszoo")
class SummedOutput(keras.losses.Loss):
    """An output that is a loss already, its terms `[B, N]` added up; the target `[B, N]` is not looked at."""

    def __init__(self, name="summed_output", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, _, terms):
        return ops.sum(terms, axis=-1)


def bound_objective(model, divergence, pixel_deviation):
    """Minus the evidence lower bound, of one sample of each image, as an `Objective`. Labels are not looked at.

    where:
      model: an inference model with the output `reconstruction`.
      divergence: the terms `[B, N]` of its graph that the latent variables cost.
      pixel_deviation: see `PixelSurprise`.
    """

    def arrange(batch):
        images = batch["images"]
        nothing = np.zeros((len(images), divergence.shape[1]), "float32")
        return {"images": images}, {"reconstruction": images, "divergence": nothing}

    outputs = {"reconstruction": model.output["reconstruction"], "divergence": divergence}
    losses = {"reconstruction": PixelSurprise(pixel_deviation), "divergence": SummedOutput()}
    return Objective(keras.Model({"images": model.input}, outputs), losses, {}, arrange)
