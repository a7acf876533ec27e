"""The capsule network with inverted dot-product attention of Tsai et al. 2020."""

import dataclasses
import typing

import keras

from capszoo.config import require_at_least, section
from capszoo.layers import ConcurrentCapsules
from capszoo.layers.batch_normalised import BATCH_NORMALISATION
from capszoo.models.architecture import Classifies, RoutesIteratively
from capszoo.models.classification import classification
from capszoo.routing import InvertedAttentionRouting
from capszoo.routing.inverted_attention import EPSILON


@section("model", "inverted_attention")
@dataclasses.dataclass(frozen=True)
class InvertedAttentionCapsNet(Classifies, RoutesIteratively):
    """A residual network, and on it capsules whose layers are routed at the same time.

        images [B, H, W, C]
        stem, block1, ...   3x3, `channels[0]`; residual blocks of two 3x3 convolutions, "same": `blocks[0]` of
                            `channels[0]`, then `blocks[1]` of `channels[1]`, the first of which has stride 2; every
                            convolution without bias, batch-normalised
        primary_capsules    1x1, no bias: `primary_types` matrices side x side; normalised over each pose's entries
        class_capsules      convolutional capsules 3x3, `conv_types`, strides 2, 1, 1, ..., and above them the class
                            capsules; inverted dot-product attention, iterations in all layers at once
        scores              softmax over classes of one linear function of each class capsule's pose

    Outputs: `scores [B, classes]` in [0, 1], each row summing to one, and `poses [B, classes, side, side]`.

    where:
      pose_side: side of a pose.
      num_iterations: how often coefficients are computed, the uniform ones included; 2 in the paper's best network.

    Trainable parameters for 32x32x3: 1,828,817 with 10 classes.
    Source: Tsai, Srivastava, Goh and Salakhutdinov 2020, "Capsules with inverted dot-product attention routing", and
    the authors' code (CIFAR-10).
    Differs from the authors' code: convolutions of stride two pad an even image at its end, not on both sides;
    convolutions begin with He's normal weights; and see `ConcurrentCapsules`.
    """

    channels: tuple[int, int] = (64, 128)
    blocks: tuple[int, int] = (3, 4)
    primary_types: int = 32
    pose_side: int = 4
    conv_types: tuple[int, ...] = (32, 32)
    num_iterations: int = 2

    paper: typing.ClassVar[str] = "Tsai et al. 2020"
    routing: typing.ClassVar[str] = "inverted_attention"
    # What a new number of classes makes anew; all other weights survive fine-tuning.
    head: typing.ClassVar[tuple[str, ...]] = ("class_capsules/class_capsules/",)

    def __post_init__(self):
        require_at_least(self, 1, "channels", "blocks", "conv_types", "primary_types", "num_iterations")
        # Normalised, a single number would be the same for all images.
        require_at_least(self, 2, "pose_side")

    @property
    def stages(self) -> tuple[str, ...]:
        """See `Architecture`."""
        blocks = [f"block{number}" for number in range(1, sum(self.blocks) + 1)]
        return ("stem", *blocks, "primary_capsules", "class_capsules")

    def build(self, image_shape, num_classes, labels_per_image=1):
        """The inference model: `images` -> dict of outputs.

        Errors: `ValueError` for images too small for the windows of the capsules (below 13x13 for two).
        """
        images = keras.Input(image_shape, name="images")
        features = _convolution(images, self.channels[0], 1, "stem_conv")
        features = keras.layers.ReLU(name="stem")(_normalised(features, "stem_normalisation"))
        for number in range(1, sum(self.blocks) + 1):
            narrow = number <= self.blocks[0]
            stride = 2 if number == self.blocks[0] + 1 else 1
            features = _block(features, self.channels[0 if narrow else 1], stride, f"block{number}")
        windows = [(3, 1 if number else 2) for number, _ in enumerate(self.conv_types)]
        routing = InvertedAttentionRouting(self.num_iterations, name="routing")
        poses = ConcurrentCapsules(self.conv_types, windows, num_classes, routing, name="class_capsules")(
            self._primary_capsules(features)
        )
        return self.network(images, {"scores": _scores(poses), "poses": poses}, labels_per_image)

    def _primary_capsules(self, features):
        """`[B, H, W, types, side, side]` of feature maps."""
        size = self.pose_side**2
        poses = _convolution(features, self.primary_types * size, 1, "primary_poses", kernel_size=1)
        poses = keras.layers.Reshape((*poses.shape[1:3], self.primary_types, size), name="poses_in_rows")(
            poses
        )
        poses = keras.layers.LayerNormalization(epsilon=EPSILON, name="primary_normalisation")(poses)
        shape = *poses.shape[1:4], self.pose_side, self.pose_side
        return keras.layers.Reshape(shape, dtype="float32", name="primary_capsules")(poses)

    def objective(self, model, labels_per_image=1):
        """The negative log-likelihood of the labelled class. Errors: `ValueError` for several labels per image."""
        return classification(model, "log_likelihood", labels_per_image)


def _scores(poses):
    """Softmax over classes of one linear function for all class capsules."""
    rows = keras.layers.Reshape((poses.shape[1], -1), dtype="float32", name="class_poses")(poses)
    logits = keras.layers.Dense(1, dtype="float32", name="class_logits")(rows)
    logits = keras.layers.Reshape((poses.shape[1],), dtype="float32", name="logits")(logits)
    return keras.layers.Softmax(dtype="float32", name="scores")(logits)


def _convolution(features, channels, stride, name, kernel_size=3):
    return keras.layers.Conv2D(
        channels, kernel_size, stride, "same", use_bias=False, kernel_initializer="he_normal", name=name
    )(features)


def _normalised(features, name):
    return keras.layers.BatchNormalization(**BATCH_NORMALISATION, name=name)(features)


def _block(features, channels, stride, name):
    """Two convolutions and what goes past them, added."""
    past = features
    if stride != 1 or features.shape[-1] != channels:
        past = _convolution(features, channels, stride, f"{name}_past", kernel_size=1)
        past = _normalised(past, f"{name}_normalisation_past")
    for number in (1, 2):
        features = _convolution(features, channels, stride if number == 1 else 1, f"{name}_conv{number}")
        features = _normalised(features, f"{name}_normalisation{number}")
        if number == 1:
            features = keras.layers.ReLU(name=f"{name}_relu")(features)
    features = keras.layers.Add(name=f"{name}_sum")([features, past])
    return keras.layers.ReLU(name=name)(features)
