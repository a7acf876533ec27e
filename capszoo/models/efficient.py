"""The capsule network with self-attention routing of Mazzia et al. 2021."""

import dataclasses
import typing

import keras

from capszoo.config import require_at_least, require_equally_many, section
from capszoo.layers import DenseCapsules, DepthwisePrimaryCapsules
from capszoo.models.decoded_classes import DecodesClasses
from capszoo.routing import SelfAttentionRouting


@section("model", "efficient")
@dataclasses.dataclass(frozen=True)
class EfficientCapsNet(DecodesClasses):
    """Four small convolutions, sixteen capsules that see the whole image, and class capsules routed in one pass.

        images [B, H, W, C]
        conv1 .. conv4    `kernel_sizes`, `channels`, `strides`, valid, each with ReLU and then its normalisation
        primary_capsules  depthwise `primary_kernel`: types x `primary_dim` = channels of conv4; squash
        class_capsules    every child votes for every class; self-attention routing
        scores, decoder   see `DecodesClasses`

    Outputs: `scores [B, classes]` in [0, 1], `poses [B, classes, class_dim]`, and with `decoder` `reconstruction
    [B, H, W, C]` in [0, 1] (`[B, N, H, W, C]`, one per label, where an image has N labels).

    where:
      normalisation: "batch", or "instance", which the authors have for smallNORB, with leaky ReLU (slope 0.3).
      primary_kernel, primary_strides: of the depthwise convolution; 9 on 28x28 leaves a single position.
      loss_scaling: "paper" or "official" margin loss, see `MarginLoss`.

    Trainable parameters without decoder: 161,824 for 28x28x1 and ten classes; 154,656 for MultiMNIST, 36x36x1;
    151,664 for smallNORB, 48x48x2.
    Source: Mazzia, Salvetti and Chiaberge 2021, "Efficient-CapsNet: capsule network with self-attention routing".
    Differs from the paper: matrices of the votes begin with deviation 0.1, as in all dense capsules of the zoo (the
    authors' he_normal over four axes has 0.04); for smallNORB, whose images are standardised, there is no decoder.
    """

    channels: tuple[int, ...] = (32, 64, 64, 128)
    kernel_sizes: tuple[int, ...] = (5, 3, 3, 3)
    strides: tuple[int, ...] = (1, 1, 1, 2)
    normalisation: typing.Literal["batch", "instance"] = "batch"
    primary_dim: int = 8
    primary_kernel: int = 9
    primary_strides: int = 1
    class_dim: int = 16
    decoder: bool = True
    loss_scaling: typing.Literal["paper", "official"] = "paper"

    paper: typing.ClassVar[str] = "Mazzia et al. 2021"
    routing: typing.ClassVar[str] = "self_attention"
    # What a new number of classes makes anew; all other weights survive fine-tuning.

    def __post_init__(self):
        require_equally_many(self, "channels", "kernel_sizes", "strides")
        require_at_least(self, 1, "channels", "kernel_sizes", "strides")
        require_at_least(self, 1, "primary_dim", "primary_kernel", "primary_strides", "class_dim")
        if self.channels[-1] % self.primary_dim:
            raise ValueError(
                f"the last of channels must be a multiple of primary_dim. "
                f"Received: {self.channels[-1]} and {self.primary_dim}"
            )

    @property
    def stages(self) -> tuple[str, ...]:
        """See `Architecture`."""
        convolutions = [f"conv{number}" for number, _ in enumerate(self.channels, 1)]
        return (*convolutions, "primary_capsules", "class_capsules")

    def build(self, image_shape, num_classes, labels_per_image=1):
        """The inference model: `images` -> dict of outputs.

        Errors: `ValueError` for images too small for the convolutions.
        """
        side = least = min(image_shape[:2])
        for size, stride in zip(self.kernel_sizes, self.strides, strict=True):
            side = (side - size) // stride + 1
        if side < self.primary_kernel:
            raise ValueError(
                f"images of {least} pixels are too small for the convolutions: {side} of the {self.primary_kernel} "
                f"positions that the primary capsules need are left. Received: {tuple(image_shape)}"
            )
        images = features = keras.Input(image_shape, name="images")
        for number in range(1, len(self.channels) + 1):
            features = self._convolution(number)(features)
            features = self._activation(number)(features)
            features = self._normalisation(number)(features)
        primary = DepthwisePrimaryCapsules(
            self.channels[-1] // self.primary_dim,
            self.primary_dim,
            self.primary_kernel,
            self.primary_strides,
            name="primary_capsules",
        )(features)
        routing = SelfAttentionRouting(name="routing")
        poses = DenseCapsules(num_classes, self.class_dim, routing, name="class_capsules")(primary)
        return self.network(images, self.outputs(poses, image_shape, labels_per_image), labels_per_image)

    def _convolution(self, number):
        return keras.layers.Conv2D(
            self.channels[number - 1],
            self.kernel_sizes[number - 1],
            self.strides[number - 1],
            kernel_initializer="he_normal",
            name=f"conv{number}",
        )

    def _activation(self, number):
        slope = 0.3 if self.normalisation == "instance" else 0.0
        return keras.layers.ReLU(negative_slope=slope, name=f"relu{number}")

    def _normalisation(self, number):
        if self.normalisation == "instance":
            # One group per channel.
            return keras.layers.GroupNormalization(groups=-1, name=f"normalisation{number}")
        return keras.layers.BatchNormalization(name=f"normalisation{number}")
