"""The capsule network with self-routing of Hahn et al. 2019."""

import dataclasses
import typing

import keras

from capszoo.config import require_at_least, require_equally_many, section
from capszoo.layers import SelfRoutedClassCapsules
from capszoo.models.architecture import Classifies
from capszoo.models.classification import classification
from capszoo.routing import SelfRouting


@section("model", "self_routing")
@dataclasses.dataclass(frozen=True)
class SelfRoutingCapsNet(Classifies):
    """Plain convolutions, one layer of capsules, and class capsules among which each of them shares itself.

        images [B, H, W, C]
        conv1 .. conv6      3x3, "same", `channels`, `strides`; batch normalisation, ReLU
        primary_capsules    poses: 3x3, "same", `primary_types` x `primary_dim`, linear
        primary_activations 3x3, "same", `primary_types`; batch normalisation, logistic
        scores              class capsules, activations without poses, self-routing

    Outputs: `scores [B, classes]` in [0, 1], each row summing to one.

    Trainable parameters for 32x32x2 and 5 classes: 814,960.
    Source: Hahn, Pyeon and Kim 2019, "Self-routing capsule networks", and the authors' code (smallNORB).
    Differs from the authors' code: convolutions have biases, and poses are not batch-normalised (theirs would have
    815,104 parameters for two cameras); convolutions of stride two pad an even image at its end, not on both sides;
    they begin with He's normal weights, and normalisations have Keras' momentum and constant.
    """

    channels: tuple[int, ...] = (16, 32, 32, 64, 64, 128)
    strides: tuple[int, ...] = (1, 2, 1, 2, 1, 2)
    primary_types: int = 32
    primary_dim: int = 16

    paper: typing.ClassVar[str] = "Hahn et al. 2019"
    routing: typing.ClassVar[str] = "self_routing"
    # What a new number of classes makes anew; all other weights survive fine-tuning.
    head: typing.ClassVar[tuple[str, ...]] = ("scores/",)
    served: typing.ClassVar[tuple[str, ...]] = ("scores",)

    def __post_init__(self):
        require_equally_many(self, "channels", "strides")
        require_at_least(self, 1, "channels", "strides", "primary_types", "primary_dim")

    @property
    def stages(self) -> tuple[str, ...]:
        """See `Architecture`."""
        convolutions = [f"conv{number}" for number, _ in enumerate(self.channels, 1)]
        return (*convolutions, "primary_capsules", "primary_activations")

    def build(self, image_shape, num_classes, labels_per_image=1):
        """The inference model: `images` -> dict of outputs."""
        images = features = keras.Input(image_shape, name="images")
        for number, (channels, stride) in enumerate(zip(self.channels, self.strides, strict=True), 1):
            features = keras.layers.Conv2D(
                channels, 3, stride, "same", kernel_initializer="he_normal", name=f"conv{number}"
            )(features)
            features = keras.layers.BatchNormalization(name=f"normalisation{number}")(features)
            features = keras.layers.ReLU(name=f"relu{number}")(features)
        capsules = self._poses(features), self._activations(features)
        routing = SelfRouting(name="routing")
        scores = SelfRoutedClassCapsules(num_classes, routing, name="scores")(capsules)
        return self.network(images, {"scores": scores}, labels_per_image)

    def _poses(self, features):
        """`[B, H, W, types, D]` of feature maps."""
        size = self.primary_types * self.primary_dim
        poses = keras.layers.Conv2D(size, 3, padding="same", name="poses")(features)
        shape = *poses.shape[1:3], self.primary_types, self.primary_dim
        return keras.layers.Reshape(shape, name="primary_capsules")(poses)

    def _activations(self, features):
        """`[B, H, W, types]` of feature maps."""
        logits = keras.layers.Conv2D(self.primary_types, 3, padding="same", name="activations")(features)
        logits = keras.layers.BatchNormalization(name="normalisation_activations")(logits)
        return keras.layers.Activation("sigmoid", dtype="float32", name="primary_activations")(logits)

    def objective(self, model, labels_per_image=1):
        """The negative log-likelihood of the labelled class. Errors: `ValueError` for several labels per image."""
        return classification(model, "log_likelihood", labels_per_image)
