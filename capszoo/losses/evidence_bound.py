"""The terms of the evidence lower bound of generative models as losses.

-bound = GaussianNegativeLogLikelihood(images, reconstruction) + SummedOutput(divergence)
"""

import math

import keras
from keras import ops

from capszoo.losses.shapes import require_shape


@keras.saving.register_keras_serializable(package="capszoo")
class GaussianNegativeLogLikelihood(keras.losses.Loss):
    """Minus the log likelihood of an image whose pixels are normal around a reconstruction.

        loss = -sum_pixels log N(x; x_hat, deviation^2)

    where:
      x, x_hat: `[B, H, W, C]`.
      deviation: of a pixel, in its units.
      loss: `[B]`, in nats; Keras averages it over the batch.

    Errors: `ValueError` for images of another shape than the reconstructions.
    Source: Smith et al. 2020, equation 7; the deviation 0.2 from appendix B.
    """

    def __init__(self, deviation=0.2, name="gaussian_negative_log_likelihood", **kwargs):
        super().__init__(name=name, **kwargs)
        self.deviation = deviation

    def call(self, images, reconstructions):
        require_shape(images, reconstructions, "images")
        constant = math.log(self.deviation * math.sqrt(2 * math.pi)) * math.prod(reconstructions.shape[1:])
        squares = ops.sum(ops.square(images - reconstructions), axis=(1, 2, 3))
        return squares / (2 * self.deviation**2) + constant

    def get_config(self):
        return {**super().get_config(), "deviation": self.deviation}


@keras.saving.register_keras_serializable(package="capszoo")
class SummedOutput(keras.losses.Loss):
    """An output that is a loss already, its terms `[B, N]` added up to `[B]`; the target `[B, N]` is not looked at.

    It has the terms of Smith et al. 2020, appendix A, that `capszoo.layers.Divergence` computes.
    """

    def __init__(self, name="summed_output", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, _, terms):
        return ops.sum(terms, axis=-1)
