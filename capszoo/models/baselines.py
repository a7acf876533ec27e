"""Ordinary networks that the capsule papers compare themselves with."""

import dataclasses
import typing

import keras

from capszoo.config import section
from capszoo.models.architecture import Classifies
from capszoo.models.classification import classification


@section("model", "cnn")
@dataclasses.dataclass(frozen=True)
class ConvNet(Classifies):
    """The convolutional baseline of Hinton et al. 2018.

        images [B, H, W, C]
        conv1, pool1      5x5, `channels[0]`, ReLU; 2x2 maximum
        conv2, pool2      5x5, `channels[1]`, ReLU; 2x2 maximum
        hidden            `hidden` units, ReLU; dropout
        scores            softmax over classes

    Outputs: `scores [B, classes]` in [0, 1], each row summing to one, and `logits [B, classes]`, of which they are
    made. There are no capsules and no poses.

    where:
      dropout: share of the hidden units that each training step leaves out.

    Parameters for 32x32x2 and 5 classes: 4,253,349.
    Source: Hinton et al. 2018, section 5.
    Differs from the paper: it does not name padding ("same" gives its 4.2 M parameters), dropout rate and loss
    (cross-entropy here).
    """

    channels: tuple[int, int] = (32, 64)
    hidden: int = 1024
    dropout: float = 0.5

    paper: typing.ClassVar[str] = "Hinton et al. 2018"
    routing: typing.ClassVar[str] = "none"
    stages: typing.ClassVar[tuple[str, ...]] = ("conv1", "conv2", "hidden")
    # What a new number of classes makes anew; all other weights survive fine-tuning.
    head: typing.ClassVar[tuple[str, ...]] = ("logits/",)
    served: typing.ClassVar[tuple[str, ...]] = ("scores", "logits")

    def __post_init__(self):
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1). Received: {self.dropout}")

    def build(self, image_shape, num_classes, labels_per_image=1):
        """The inference model: `images` -> dict of outputs. Errors: `ValueError` for images below 4x4."""
        if min(image_shape[:2]) < 4:
            raise ValueError(f"images must be at least 4x4. Received: {tuple(image_shape)}")
        images = keras.Input(image_shape, name="images")
        features = images
        for number, channels in enumerate(self.channels, start=1):
            features = keras.layers.Conv2D(
                channels, 5, padding="same", activation="relu", name=f"conv{number}"
            )(features)
            features = keras.layers.MaxPooling2D(name=f"pool{number}")(features)
        features = keras.layers.Flatten(name="flatten")(features)
        features = keras.layers.Dense(self.hidden, activation="relu", name="hidden")(features)
        features = keras.layers.Dropout(self.dropout, name="dropout")(features)
        logits = keras.layers.Dense(num_classes, dtype="float32", name="logits")(features)
        outputs = {
            "scores": keras.layers.Softmax(dtype="float32", name="scores")(logits),
            "logits": logits,
        }
        return self.network(images, outputs, labels_per_image)

    def objective(self, model, labels_per_image=1):
        """Cross-entropy of the softmax. Errors: `ValueError` for several labels per image."""
        return classification(model, "log_likelihood", labels_per_image)
