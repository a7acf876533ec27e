"""The capsule network with dynamic routing of Sabour et al. 2017."""

import dataclasses
import typing

import keras

from capszoo.config import require_at_least, section
from capszoo.layers import DenseCapsules, PrimaryCapsules
from capszoo.models.architecture import RoutesIteratively
from capszoo.models.decoded_classes import DecodesClasses
from capszoo.routing import DynamicRouting, UniformRouting


@section("model", "dynamic")
@dataclasses.dataclass(frozen=True)
class DynamicCapsNet(DecodesClasses, RoutesIteratively):
    """Two convolutions, primary capsules, routed class capsules, and a decoder as regulariser.

        images [B, H, W, C]
        conv1             9x9, `channels`, stride 1, ReLU
        primary_capsules  9x9, stride 2: `primary_types` x `primary_dim` per position
        class_capsules    every child votes for every class; routing
        scores            lengths of the class capsules
        decoder           of the most active class capsule (at training: of the label's)

    Outputs: `scores [B, classes]` in [0, 1], `poses [B, classes, class_dim]`, and with `decoder` `reconstruction
    [B, H, W, C]` in [0, 1] (`[B, N, H, W, C]`, one per label, where an image has N labels).

    where:
      routing: "dynamic", "leaky" (dynamic with a way out), "sum" or "mean" (no routing; squash of the sum or mean).
      num_iterations: softmaxes of the dynamic routings.
      class_bias: bias [classes, class_dim] inside the squash; in the authors' code, not in the paper nor in most ports.
      primary_scale: factor before the primary squash; None is the authors' 1 / primary_types, 1 the paper's text.
      loss_scaling: "paper" or "official" margin loss, see `MarginLoss`.

    Parameters for 28x28x1: 8,215,728 (6,804,384 without decoder).
    Source: Sabour et al. 2017, section 4, figures 1 and 2; initial weights from the authors' code.
    Differs from the paper: class_bias and primary_scale as in the authors' code, by default.
    """

    channels: int = 256
    primary_types: int = 32
    primary_dim: int = 8
    class_dim: int = 16
    padding: typing.Literal["valid", "same"] = "valid"
    primary_scale: float | None = None
    routing: typing.Literal["dynamic", "leaky", "sum", "mean"] = "dynamic"
    num_iterations: int = 3
    class_bias: bool = True
    decoder: bool = True
    loss_scaling: typing.Literal["paper", "official"] = "paper"

    paper: typing.ClassVar[str] = "Sabour et al. 2017"
    stages: typing.ClassVar[tuple[str, ...]] = ("conv1", "primary_capsules", "class_capsules")
    # What a new number of classes makes anew; all other weights survive fine-tuning.

    def has(self, role) -> bool:
        """See `Architecture.has`; sums are not iterated."""
        iterates = self.routing not in ("sum", "mean")
        return super().has(role) and (iterates or not issubclass(role, RoutesIteratively))

    def __post_init__(self):
        require_at_least(self, 1, "channels", "primary_types", "primary_dim", "class_dim", "num_iterations")

    def build(self, image_shape, num_classes, labels_per_image=1):
        """The inference model: `images` in [0, 1] -> dict of outputs.

        Errors: `ValueError` for images too small for the two 9x9 convolutions.
        """
        if self.padding == "valid" and min(image_shape[:2]) < 17:
            raise ValueError(f"images must be at least 17x17. Received: {tuple(image_shape)}")
        images = keras.Input(image_shape, name="images")
        features = keras.layers.Conv2D(
            self.channels,
            9,
            padding=self.padding,
            activation="relu",
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.05),
            bias_initializer=keras.initializers.Constant(0.1),
            name="conv1",
        )(images)
        scale = 1.0 / self.primary_types if self.primary_scale is None else self.primary_scale
        primary = PrimaryCapsules(
            self.primary_types, self.primary_dim, 9, 2, self.padding, scale, name="primary_capsules"
        )(features)
        poses = self._class_capsules(primary, num_classes)
        return self.network(images, self.outputs(poses, image_shape, labels_per_image), labels_per_image)

    def _class_capsules(self, primary, num_classes):
        """Poses `[B, classes, class_dim]` of all that lies above the primary capsules."""
        return DenseCapsules(num_classes, self.class_dim, self._routing(), name="class_capsules")(primary)

    def _routing(self):
        if self.routing in ("sum", "mean"):
            return UniformRouting(self.routing, use_bias=self.class_bias, name="routing")
        leaky = self.routing == "leaky"
        return DynamicRouting(self.num_iterations, leaky=leaky, use_bias=self.class_bias, name="routing")
