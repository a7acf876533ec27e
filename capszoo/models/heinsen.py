"""The network with Heinsen's routing of Heinsen 2019 (smallNORB)."""

import dataclasses
import typing

import keras

from capszoo.config import require_at_least, require_equally_many, section
from capszoo.layers import CoordinateChannels, HeinsenCapsules
from capszoo.layers.batch_normalised import BATCH_NORMALISATION
from capszoo.models.architecture import Classifies, RoutesIteratively
from capszoo.models.classification import classification
from capszoo.routing import HeinsenRouting


@section("model", "heinsen")
@dataclasses.dataclass(frozen=True)
class HeinsenCapsNet(Classifies, RoutesIteratively):
    """Plain convolutions, and two layers of capsules that all capsules below vote for; Heinsen's routing.

        images [B, H, W, C]
        coordinates         two more channels: row and column, from -1 to 1
        conv1 .. conv6      batch normalisation, 3x3, `channels`, `strides`; swish
        primary_capsules    batch normalisation, 1x1: `types` matrices 4x4
        primary_activations batch normalisation, 1x1: `types`, logistic
        capsules            `types` capsules of all positions and types below, which share matrices and betas
        class_capsules      one per class, of all `types`
        scores              softmax over the logits of the class capsules

    Outputs: `scores [B, classes]` in [0, 1], each row summing to one, and `poses [B, classes, 4, 4]`.

    where:
      num_iterations: how often coefficients are computed in both routings, the uniform ones included.

    Trainable parameters for 96x96x2 and 5 classes: 271,688.
    Source: Heinsen 2019, "An algorithm for routing capsules in all domains", section 3, and the author's code.
    Differs from the author's code: the 1x1 convolutions too begin with He's normal weights; images are standardised
    where a data set does so, and not by the first normalisation alone.
    """

    channels: tuple[int, ...] = (64, 64, 64, 64, 64, 64)
    strides: tuple[int, ...] = (1, 2, 1, 2, 1, 2)
    types: int = 64
    num_iterations: int = 3

    paper: typing.ClassVar[str] = "Heinsen 2019"
    routing: typing.ClassVar[str] = "heinsen"
    # What a new number of classes makes anew; all other weights survive fine-tuning.
    head: typing.ClassVar[tuple[str, ...]] = ("class_capsules/",)

    def __post_init__(self):
        require_equally_many(self, "channels", "strides")
        require_at_least(self, 1, "channels", "strides", "types", "num_iterations")

    @property
    def stages(self) -> tuple[str, ...]:
        """See `Architecture`."""
        convolutions = [f"conv{number}" for number, _ in enumerate(self.channels, 1)]
        return (*convolutions, "primary_capsules", "primary_activations", "capsules")

    def build(self, image_shape, num_classes, labels_per_image=1):
        """The inference model: `images` -> dict of outputs.

        Errors: `ValueError` for images too small for the convolutions (below 29x29 for the paper's six).
        """
        images = keras.Input(image_shape, name="images")
        features = CoordinateChannels(name="coordinates")(images)
        for number, (channels, stride) in enumerate(zip(self.channels, self.strides, strict=True), 1):
            features = _convolution(features, channels, 3, stride, f"conv{number}_linear")
            features = keras.layers.Activation("swish", name=f"conv{number}")(features)
        capsules = HeinsenCapsules(self.types, self._routing(True), name="capsules")(
            self._primary_capsules(features)
        )
        poses, logits = HeinsenCapsules(num_classes, self._routing(False), name="class_capsules")(capsules)
        scores = keras.layers.Softmax(dtype="float32", name="scores")(logits)
        return self.network(images, {"scores": scores, "poses": poses}, labels_per_image)

    def _routing(self, hidden):
        return HeinsenRouting(self.num_iterations, shared_betas=hidden, logits=not hidden, name="routing")

    def _primary_capsules(self, features):
        """Poses `[B, H, W, types, 4, 4]` and activations `[B, H, W, types]` of feature maps."""
        poses = _convolution(features, self.types * 16, 1, 1, "poses")
        shape = *poses.shape[1:3], self.types, 4, 4
        poses = keras.layers.Reshape(shape, dtype="float32", name="primary_capsules")(poses)
        logits = _convolution(features, self.types, 1, 1, "activations")
        return poses, keras.layers.Activation("sigmoid", dtype="float32", name="primary_activations")(logits)

    def objective(self, model, labels_per_image=1):
        """The negative log-likelihood of the labelled class. Errors: `ValueError` for several labels per image."""
        return classification(model, "log_likelihood", labels_per_image)


def _convolution(features, channels, kernel_size, stride, name):
    """Batch normalisation and a convolution without padding."""
    features = keras.layers.BatchNormalization(**BATCH_NORMALISATION, name=f"{name}_normalisation")(features)
    return keras.layers.Conv2D(channels, kernel_size, stride, kernel_initializer="he_normal", name=name)(
        features
    )
