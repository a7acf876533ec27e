"""Matrix capsules with variational-Bayes routing, the network of De Sousa Ribeiro et al. 2020."""

import dataclasses
import typing

import keras

from capszoo.config import require_at_least, section
from capszoo.layers import (
    BatchNormalisedClassCapsules,
    BatchNormalisedConvCapsules,
    BatchNormalisedPrimaryCapsules,
)
from capszoo.layers.batch_normalised import BATCH_NORMALISATION
from capszoo.layers.coordinates import receptive_field_centres
from capszoo.models.architecture import Classifies, RoutesIteratively
from capszoo.models.classification import classification
from capszoo.routing import VariationalBayesRouting

# (kernel_size, strides) from the image upwards: conv1, primary_capsules, conv_capsules1, conv_capsules2.
WINDOWS = ((5, 2), (1, 1), (3, 2), (3, 1))


@section("model", "variational_bayes")
@dataclasses.dataclass(frozen=True)
class VariationalBayesCapsNet(Classifies, RoutesIteratively):
    """The network of matrix capsules with EM routing, batch-normalised throughout; variational-Bayes routing.

        images [B, H, W, C]
        conv1             5x5, `channels`, stride 2; batch normalisation, ReLU
        primary_capsules  1x1: `primary_types`; batch normalisation
        conv_capsules1    3x3, stride 2: `conv1_types`; variational-Bayes routing, batch normalisation
        conv_capsules2    3x3, stride 1: `conv2_types`; variational-Bayes routing, batch normalisation
        class_capsules    one matrix per type and class, coordinate addition; routing, batch normalisation
        scores            activations of the class capsules

    Outputs: `scores [B, classes]` in (0, 1), `poses [B, classes, 4, 4]`.

    where:
      num_iterations: M-steps of every routing.
      loss: "softmax_of_activations" (the authors' code), which takes the scores for logits and is at least
        log(1 + (O - 1) / e) however good the network, 0.9 for five classes, or "cross_entropy" of the activations' own
        logits.

    Coordinate addition adds (y + 1) / (10 H) and (x + 1) / (10 W) to the first two entries of the right-hand column of
    the votes that come from row y and column x of H x W capsules.

    Logits of classes are normalised without scale or shift: with n classes as frequent as each other, a network that
    knows all of them scores the right one with 1 / (1 + exp(-sqrt(n - 1))), 0.88 of five, and the others with
    1 / (1 + exp(1 / sqrt(n - 1))), 0.38.

    Trainable parameters for 32x32x2 and 5 classes: 68,714; with types 16, 32, 16: 169,642. Of these, two betas per
    type of routed capsules make no difference to a network that is trained: normalisation takes them away.
    Source: De Sousa Ribeiro, Leontidis and Kollias 2020, "Capsule routing via variational Bayes", and the authors'
    code, from which is all that lies around the routing.
    """

    channels: int = 64
    primary_types: int = 8
    conv1_types: int = 16
    conv2_types: int = 16
    num_iterations: int = 3
    loss: typing.Literal["softmax_of_activations", "cross_entropy"] = "softmax_of_activations"

    paper: typing.ClassVar[str] = "De Sousa Ribeiro et al. 2020"
    routing: typing.ClassVar[str] = "variational_bayes"
    stages: typing.ClassVar[tuple[str, ...]] = (
        "conv1",
        "primary_capsules",
        "conv_capsules1",
        "conv_capsules2",
        "class_capsules",
    )
    # What a new number of classes makes anew; all other weights survive fine-tuning.
    head: typing.ClassVar[tuple[str, ...]] = ("class_capsules/",)

    def __post_init__(self):
        require_at_least(self, 1, "channels", "primary_types", "conv1_types", "conv2_types", "num_iterations")

    def build(self, image_shape, num_classes, labels_per_image=1):
        """The inference model: `images` -> dict of outputs. Images are standardised where the paper does so.

        Errors: `ValueError` for images too small for the four windows (below 17x17).
        """
        coordinates = [_coordinates(side) for side in image_shape[:2]]
        images = keras.Input(image_shape, name="images")
        features = keras.layers.Conv2D(
            self.channels, 5, 2, use_bias=False, kernel_initializer="he_uniform", name="conv1"
        )(images)
        features = keras.layers.BatchNormalization(**BATCH_NORMALISATION, name="normalisation1")(features)
        features = keras.layers.ReLU(name="relu1")(features)
        capsules = BatchNormalisedPrimaryCapsules(self.primary_types, name="primary_capsules")(features)
        capsules = BatchNormalisedConvCapsules(
            self.conv1_types, 3, 2, self._routing(), name="conv_capsules1"
        )(capsules)
        capsules = BatchNormalisedConvCapsules(
            self.conv2_types, 3, 1, self._routing(), name="conv_capsules2"
        )(capsules)
        poses, scores = BatchNormalisedClassCapsules(
            num_classes, self._routing(), coordinates, name="class_capsules"
        )(capsules)
        return self.network(images, {"scores": scores, "poses": poses}, labels_per_image)

    def _routing(self):
        return VariationalBayesRouting(self.num_iterations, logits=True, name="routing")

    def objective(self, model, labels_per_image=1):
        """The chosen loss on the scores; the authors' code has cross-entropy of a softmax of activations.

        Errors: `ValueError` for several labels per image.
        """
        return classification(model, self.loss, labels_per_image)


def _coordinates(side):
    """What is added to the votes of each row, or each column, of the last grid, for an image of `side` pixels."""
    positions = len(receptive_field_centres(side, WINDOWS))
    return tuple((position + 1) / (10 * positions) for position in range(positions))
