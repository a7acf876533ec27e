"""Capsule networks with learned routing, those of Faria 2019, and the same network with EM routing beside them."""

import abc
import dataclasses
import typing

import keras

from capszoo.config import section
from capszoo.layers.inner_consensus import (
    AffinePrimaryCapsules,
    NormalisedClassCapsules,
    NormalisedConvCapsules,
)
from capszoo.models.architecture import Classifies, RoutesIteratively, ShiftsScores
from capszoo.models.classification import classification
from capszoo.routing.em import EMRouting
from capszoo.routing.kernel import KernelRouting
from capszoo.routing.lstm import LSTMRouting

# Hidden layers of a network in each of the three routings.
Hidden = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class _ConsensusNet(Classifies, RoutesIteratively):
    """The network of Table 1; a subclass says what routes.

        images [B, H, W, C]
        conv1             5x5, `channels`, stride 2, ReLU
        norm1             batch normalisation
        primary_capsules  1x1: `primary_types`
        conv_capsules1    3x3, stride 2: `conv1_types`; routing
        conv_capsules2    3x3, stride 1: `conv2_types`; routing
        class_capsules    one matrix per capsule and class; routing
        scores            activations of the class capsules

    Outputs: `scores [B, classes]` in [0, 1] and `poses [B, classes, 4, 4]`. Votes are of matrices with norm one.
    """

    channels: int = 64
    primary_types: int = 8
    conv1_types: int = 16
    conv2_types: int = 16
    num_iterations: int = 3
    poses: typing.Literal["paper", "code"] = "paper"
    loss: typing.Literal["cross_entropy", "spread", "margin"] = "cross_entropy"

    paper: typing.ClassVar[str] = "Faria 2019"
    stages: typing.ClassVar[tuple[str, ...]] = (
        "conv1",
        "primary_capsules",
        "conv_capsules1",
        "conv_capsules2",
        "class_capsules",
    )
    # What a new number of classes makes anew; all other weights survive fine-tuning.
    head: typing.ClassVar[tuple[str, ...]] = ("class_capsules/",)

    def build(self, image_shape, num_classes, labels_per_image=1):
        """The inference model: `images` -> dict of outputs. Images are standardised where the paper does so.

        Errors: `ValueError` for images too small for the four windows (below 17x17).
        """
        if min(image_shape[:2]) < 17:
            raise ValueError(f"images must be at least 17x17. Received: {tuple(image_shape)}")
        images = keras.Input(image_shape, name="images")
        features = keras.layers.Conv2D(self.channels, 5, strides=2, activation="relu", name="conv1")(images)
        features = keras.layers.BatchNormalization(name="norm1")(features)
        capsules = AffinePrimaryCapsules(
            self.primary_types, normalise=self.poses == "code", name="primary_capsules"
        )(features)
        capsules = NormalisedConvCapsules(self.conv1_types, 3, 2, self._routing(0), name="conv_capsules1")(
            capsules
        )
        capsules = NormalisedConvCapsules(self.conv2_types, 3, 1, self._routing(1), name="conv_capsules2")(
            capsules
        )
        poses, scores = NormalisedClassCapsules(num_classes, self._routing(2), name="class_capsules")(
            capsules
        )
        return self.network(images, {"scores": scores, "poses": poses}, labels_per_image)

    @abc.abstractmethod
    def _routing(self, number):
        """The routing into conv_capsules1 (0), conv_capsules2 (1) or class_capsules (2)."""

    def objective(self, model, labels_per_image=1):
        """The chosen loss on the scores, as for matrix capsules.

        Errors: `ValueError` for several labels per image, unless the loss is "margin".
        """
        return classification(model, self.loss, labels_per_image)


class _LearnedRoutingNet(_ConsensusNet, ShiftsScores):
    """Where routing is learned, a weight of the class capsules adds to the logits of all activations."""

    def has(self, role) -> bool:
        """See `Architecture.has`; only cross-entropy does not feel such a number."""
        return super().has(role) and (self.loss == "cross_entropy" or role is not ShiftsScores)

    def shift(self, model, amount):
        """See `ShiftsScores`."""
        model.get_layer("class_capsules").routing.shift(amount)


@section("model", "kernel")
@dataclasses.dataclass(frozen=True)
class KernelCapsNet(_LearnedRoutingNet):
    """The network of Table 1 with similarity-learning routing: a learned kernel compares votes with their parent.

    Layers and outputs: conv1, norm1, primary_capsules, conv_capsules1, conv_capsules2, class_capsules; `scores
    [B, classes]`, in [0, 1], and `poses [B, classes, 4, 4]`.

    where:
      num_iterations: updates of the coefficients in every routing, after the uniform ones.
      poses: of the primary capsules: "paper", affine in the features; "code", behind a ReLU and of norm one.
      loss: "cross_entropy" (of the activations' logits), "spread" or "margin".
      components: Gaussians in the kernels of the three routings (Q).
      kernel: "gaussian" (equation 15) or "spectral" (author's code), see `KernelRouting`.
      alpha, beta, scales: initial values, see `KernelRouting`.

    Trainable parameters for 32x32x1 and 5 classes: 86,408 + 221; 128 statistics of the normalisation beside them.
    Source: Faria 2019, Table 1, sections 4.1 and 5; what `KernelRouting` takes from the author's code.
    Differs from the paper: it names no loss (cross-entropy, the default of the author's code), and prints the learning
    rate as "3-e3", without the constants of its decay. The code's coordinates, which the paper does not mention, are
    left out.
    """

    components: tuple[int, int, int] = (4, 4, 10)
    kernel: typing.Literal["gaussian", "spectral"] = "gaussian"
    alpha: float = 1.0
    beta: float = 1.0
    scales: tuple[float, float] = (1 / 32, 1.0)

    routing: typing.ClassVar[str] = "kernel"
    repeated: typing.ClassVar[tuple[str, ...]] = ("num_iterations", "components")

    def _routing(self, number):
        return KernelRouting(
            self.components[number],
            self.kernel,
            self.num_iterations,
            self.alpha,
            self.beta,
            self.scales,
            name="routing",
        )


@section("model", "lstm")
@dataclasses.dataclass(frozen=True)
class LSTMCapsNet(_LearnedRoutingNet):
    """The network of Table 1 with connectionist routing: an LSTM cell for each pair of child and parent.

    Layers and outputs: conv1, norm1, primary_capsules, conv_capsules1, conv_capsules2, class_capsules; `scores
    [B, classes]`, in [0, 1], and `poses [B, classes, 4, 4]`.

    where:
      num_iterations: updates of the coefficients in every routing, after the uniform ones.
      poses: of the primary capsules: "paper", affine in the features; "code", behind a ReLU and of norm one.
      loss: "cross_entropy" (of the activations' logits), "spread" or "margin".
      units: of the LSTM cells.
      compatibility, activation: hidden layers of the networks that make coefficients and activations, for
        conv_capsules1, conv_capsules2 and class_capsules; those of Table 2.
      state_roles: "paper" or "code", which state makes coefficients and which activations, see `LSTMRouting`.

    Trainable parameters for 32x32x1 and 5 classes: 86,408 + 39,818; 128 statistics of the normalisation beside them.
    Source: Faria 2019, Tables 1 and 2, sections 4.2 and 5.
    Differs from the paper: as `KernelCapsNet`. Table 2 lost its headings: the first column is taken for the network
    that makes coefficients, in the order of the text.
    """

    units: int = 16
    compatibility: Hidden = ((), (32, 32), (64, 64))
    activation: Hidden = ((), (64, 64), (124, 124))
    state_roles: typing.Literal["paper", "code"] = "paper"

    routing: typing.ClassVar[str] = "lstm"

    def _routing(self, number):
        return LSTMRouting(
            self.units,
            self.compatibility[number],
            self.activation[number],
            self.state_roles,
            self.num_iterations,
            name="routing",
        )


@section("model", "consensus_em")
@dataclasses.dataclass(frozen=True)
class ConsensusEMNet(_ConsensusNet):
    """The network of Table 1 with EM routing: what learned routing is compared with in Table 3.

    Layers and outputs: conv1, norm1, primary_capsules, conv_capsules1, conv_capsules2, class_capsules; `scores
    [B, classes]`, in [0, 1], and `poses [B, classes, 4, 4]`.

    where:
      num_iterations: M-steps of every routing.
      poses: of the primary capsules: "paper", affine in the features; "code", behind a ReLU and of norm one.
      loss: "cross_entropy" (of the activations' logits), "spread" or "margin".
      final_lambda: inverse temperature that the schedule tends to, see `EMRouting`.

    Trainable parameters for 32x32x1 and 5 classes: 86,408 + 74; 128 statistics of the normalisation beside them.
    Source: Faria 2019, Table 1 and section 5, which means to train it in the same way but quotes other code's errors;
    Hinton et al. 2018, Procedure 1.
    """

    final_lambda: float = 0.01

    routing: typing.ClassVar[str] = "em"

    def _routing(self, number):
        return EMRouting(self.num_iterations, final_lambda=self.final_lambda, name="routing")
