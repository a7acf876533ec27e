"""An ordinary variational autoencoder, what probabilistic capsules are compared with."""

import dataclasses
import typing

import keras
from keras import ops

from capszoo.config import require_at_least, section
from capszoo.layers import Decoder, GaussianCode
from capszoo.models.architecture import Reconstructs
from capszoo.models.bound import bound_objective
from capszoo.models.probabilistic.convolutions import convolutions


@section("model", "vae")
@dataclasses.dataclass(frozen=True)
class VariationalAutoencoder(Reconstructs):
    """A variational autoencoder whose encoder sees images as the capsules' does, with their convolutions.

        images [B, H, W, C]
        conv1 .. conv4     3x3, `channels`, strides 2, 2, 1, 1, ELU
        hidden     `hidden` units, ReLU
        mean, log_deviation     of the code, `latents` numbers each
        code       drawn from q(code | image); its prior is normal
        decoder    `hidden` units, ReLU; pixels, logistic

    Outputs: `code [B, latents, 2]`, mean and standard deviation of each number of the code, whose prior has mean 0 and
    deviation 1; `reconstruction [B, H, W, C]` in [0, 1], of the mean code. There are no capsules, and a latent is no
    class: `num_classes` is not used.

    where:
      pixel_deviation: of the normal distribution of a pixel.

    Parameters for 28x28x1: 102,544 of the decoder, 231,476 of the encoder.
    Source: Smith et al. 2020, section 4 (10 latents, 128 hidden units, over 100,000 parameters) and Table 1.
    Differs from the paper: it says no more, and this of the decoder alone. The encoder is ours, with the capsules'
    convolutions; the pixels' distribution is that of the capsules.
    """

    latents: int = 10
    channels: int = 32
    hidden: int = 128
    pixel_deviation: float = 0.2

    paper: typing.ClassVar[str] = "Smith et al. 2020"
    routing: typing.ClassVar[str] = "none"
    stages: typing.ClassVar[tuple[str, ...]] = ("conv4", "hidden", "mean")
    # No layer knows how many classes there are.
    head: typing.ClassVar[tuple[str, ...]] = ()
    served: typing.ClassVar[tuple[str, ...]] = ("code",)

    def __post_init__(self):
        require_at_least(self, 1, "latents", "channels", "hidden")
        if not self.pixel_deviation > 0:
            raise ValueError(f"pixel_deviation must be positive. Received: {self.pixel_deviation}")

    def build(self, image_shape, num_classes=None, labels_per_image=1):
        """The inference model: `images` in [0, 1] -> dict of outputs."""
        images = keras.Input(image_shape, name="images")
        flat = keras.layers.Flatten(name="flatten")(convolutions(images, self.channels))
        hidden = keras.layers.Dense(self.hidden, activation="relu", name="hidden")(flat)
        mean = keras.layers.Dense(self.latents, dtype="float32", name="mean")(hidden)
        log_deviation = keras.layers.Dense(self.latents, dtype="float32", name="log_deviation")(hidden)
        code, deviation, _ = GaussianCode(name="code")(mean, log_deviation)
        single = keras.layers.Reshape((1, self.latents), dtype="float32", name="single")(code)
        decoded = Decoder(image_shape, hidden=(self.hidden,), name="decoder")(single)
        outputs = {
            "code": ops.stack([mean, deviation], axis=-1),
            "reconstruction": keras.layers.Reshape(image_shape, dtype="float32", name="reconstruction")(
                decoded
            ),
        }
        return self.network(images, outputs)

    def objective(self, model, labels_per_image=1):
        """Minus the evidence lower bound, of one sample of each image. Labels are not looked at."""
        return bound_objective(model, model.get_layer("code").output[2], self.pixel_deviation)
