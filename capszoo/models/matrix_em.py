"""Matrix capsules with EM routing, the network of Hinton et al. 2018."""

import dataclasses
import functools
import typing

import keras

from capszoo.config import section
from capszoo.layers.batch_normalised import BATCH_NORMALISATION, BatchNormalisedPrimaryCapsules
from capszoo.layers.coordinates import receptive_field_centres
from capszoo.layers.matrix import ConvCapsules, MatrixPrimaryCapsules, SharedClassCapsules
from capszoo.models.architecture import Classifies, RoutesIteratively
from capszoo.models.classification import classification
from capszoo.routing.em import EMRouting

# (kernel_size, strides) from the image upwards: conv1, primary_capsules, conv_capsules1, conv_capsules2.
WINDOWS = ((5, 2), (1, 1), (3, 2), (3, 1))
# Pixels are scaled to about [-0.1, 0.1] before they are added to votes (authors' code).
PIXELS_PER_UNIT = 100


@section("model", "matrix_em")
@dataclasses.dataclass(frozen=True)
class MatrixCapsNet(Classifies, RoutesIteratively):
    """A convolution, primary capsules, two convolutional capsule layers and class capsules; EM routing between them.

        images [B, H, W, C]
        conv1             5x5, `channels` (A), stride 2, ReLU
        primary_capsules  1x1: `primary_types` (B)
        conv_capsules1    3x3, stride 2: `conv1_types` (C); EM routing
        conv_capsules2    3x3, stride 1: `conv2_types` (D); EM routing
        class_capsules    one matrix per type and class, coordinate addition; EM routing
        scores            activations of the class capsules

    Outputs: `scores [B, classes]` in [0, 1], `poses [B, classes, 4, 4]` (`[B, classes, 16]` for vectors).

    where:
      pose: "matrix" 4x4, or "vector" of 16 with transformations of 16x16.
      variant: "paper" (Procedure 1) or "official" (the authors' code), see `EMRouting`.
      num_iterations: M-steps of every routing.
      final_lambda: inverse temperature that the schedule tends to.
      conv_lambda: the same of both convolutional capsule layers; None is `final_lambda`. A parent is assigned one
        or two children's amount of data there, and thirty at the classes, so that the authors' 0.01 leaves most
        activations of convolutional capsules within a few hundredths of 1/2.
      activation: "logistic" (description length), or "mixing" (proportions of a mixture), see `EMRouting`.
      coordinates: what is added to the votes for classes, the position of the receptive field's centre / 100 pixels:
        "paper" measures from the image's centre and adds row and column to the top of the right-hand column (of a
        vector: to the first two entries); "official" measures from half a pixel right and below and adds column and
        row to the first two entries of the first row; "none" adds nothing.
      normalise: batch normalisation of conv1 (before its ReLU, instead of a bias), of primary poses and logits of
        activations, see `BatchNormalisedPrimaryCapsules`, and of the poses that both convolutional capsule layers hand
        on: one mean and one variance for each type. Activations of routed capsules stay those of EM routing.
      loss: "spread", "margin" (Sabour et al. 2017) or "cross_entropy" (of the activations' logits).
      margin: schedule of the spread loss's margin, "linear" (paper) or "sigmoid" (authors' code).
      loss_scaling: "paper" or "official", see `SpreadLoss` and `MarginLoss`.

    Parameters for 32x32x2 and 5 classes: 316,650; with channels 64, types 8, 16, 16: 68,618; vector poses:
    4,778,730; normalised, the second 68,714 trainable ones.
    Source: Hinton et al. 2018, section 4, figure 1, Table 1; initial weights from the authors' code. `normalise`, which
    the paper does not have, is as in De Sousa Ribeiro et al. 2020.
    Differs from the authors' code: its weight decay of 2e-7 is left out. Differs from the paper: see `EMRouting`.
    """

    channels: int = 32
    primary_types: int = 32
    conv1_types: int = 32
    conv2_types: int = 32
    pose: typing.Literal["matrix", "vector"] = "matrix"
    variant: typing.Literal["paper", "official"] = "paper"
    num_iterations: int = 3
    final_lambda: float = 0.01
    conv_lambda: float | None = None
    activation: typing.Literal["logistic", "mixing"] = "logistic"
    coordinates: typing.Literal["paper", "official", "none"] = "paper"
    normalise: bool = False
    loss: typing.Literal["spread", "margin", "cross_entropy"] = "spread"
    margin: typing.Literal["linear", "sigmoid"] = "linear"
    loss_scaling: typing.Literal["paper", "official"] = "paper"

    paper: typing.ClassVar[str] = "Hinton et al. 2018"
    routing: typing.ClassVar[str] = "em"
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
        if self.conv_lambda is not None and not self.conv_lambda > 0:
            raise ValueError(f"conv_lambda must be positive or null. Received: {self.conv_lambda!r}")

    def build(self, image_shape, num_classes, labels_per_image=1):
        """The inference model: `images` -> dict of outputs. Images are standardised where the paper does so.

        Errors: `ValueError` for images too small for the four windows (below 17x17).
        """
        centres = [receptive_field_centres(side, WINDOWS) for side in image_shape[:2]]
        images = keras.Input(image_shape, name="images")
        capsules = self._primary_capsules(self._features(images))
        capsules = self._conv_capsules(self.conv1_types, 2, "conv_capsules1")(capsules)
        capsules = self._normalised(capsules, "pose_normalisation1")
        capsules = self._conv_capsules(self.conv2_types, 1, "conv_capsules2")(capsules)
        poses, scores = SharedClassCapsules(
            num_classes,
            self._routing(2.0, 1.0, self.final_lambda),
            *self._coordinates(centres),
            pose=self.pose,
            name="class_capsules",
        )(self._normalised(capsules, "pose_normalisation2"))
        return self.network(images, {"scores": scores, "poses": poses}, labels_per_image)

    def _features(self, images):
        convolution = functools.partial(
            keras.layers.Conv2D,
            self.channels,
            5,
            strides=2,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.05),
            name="conv1",
        )
        if not self.normalise:
            return convolution(activation="relu", bias_initializer=keras.initializers.Constant(0.1))(images)
        features = convolution(use_bias=False)(images)
        features = keras.layers.BatchNormalization(**BATCH_NORMALISATION, name="normalisation1")(features)
        return keras.layers.ReLU(name="relu1")(features)

    def _primary_capsules(self, features):
        layer = BatchNormalisedPrimaryCapsules if self.normalise else MatrixPrimaryCapsules
        return layer(self.primary_types, self.pose, name="primary_capsules")(features)

    def _conv_capsules(self, types, strides, name):
        conv_lambda = self.final_lambda if self.conv_lambda is None else self.conv_lambda
        return ConvCapsules(types, 3, strides, self._routing(0.5, 0.5, conv_lambda), self.pose, name=name)

    def _normalised(self, capsules, name):
        """The capsules of a routed layer for the next one."""
        if not self.normalise:
            return capsules
        poses, activations = capsules
        # One mean and one variance for each type, of all entries of its poses.
        normalisation = keras.layers.BatchNormalization(
            3, center=False, scale=False, dtype="float32", name=name, **BATCH_NORMALISATION
        )
        return normalisation(poses), activations

    def _routing(self, beta_u, beta_a, final_lambda):
        return EMRouting(
            self.num_iterations,
            self.variant,
            self.activation,
            final_lambda,
            beta_u,
            beta_a,
            name="routing",
        )

    def _coordinates(self, centres):
        """`coordinates` and `entries` of `SharedClassCapsules`."""
        if self.coordinates == "none":
            return None, (0, 1)
        shift = 0.5 if self.coordinates == "official" else 0.0
        scaled = tuple(tuple((centre - shift) / PIXELS_PER_UNIT for centre in axis) for axis in centres)
        if self.coordinates == "official":
            return scaled, (1, 0)
        return scaled, (3, 7) if self.pose == "matrix" else (0, 1)

    def objective(self, model, labels_per_image=1):
        """The chosen loss on the scores.

        Errors: `ValueError` for several labels per image, unless the loss is "margin".
        """
        return classification(model, self.loss, labels_per_image, self.loss_scaling, self.margin)
