"""Test errors: the same count of wrong images, on test splits of different data sets."""

import dataclasses
import typing

from capszoo.config import ConfigError, section
from capszoo.data import Affnist, AffnistSynth, Mnist, MultiMnist
from capszoo.data.cropping import CroppedImages
from capszoo.data.split import NOT_CROPPED
from capszoo.models.architecture import Classifies
from capszoo.protocols.crops import predict_crops
from capszoo.protocols.protocol import NumberProtocol, variant
from capszoo.protocols.statistics import wilson
from capszoo.training.scoring import predict_split, wrong


@dataclasses.dataclass(frozen=True)
class ShareOfWrong(NumberProtocol):
    """The share of the test images whose highest scores are not exactly their classes; see `wrong`."""

    metric: typing.ClassVar[str] = "test error"
    role: typing.ClassVar[type] = Classifies

    def predict(self, model, split, progress):
        """Scores `[N, O]` and labels `[N]` or `[N, k]` of all images."""
        return predict_split(model, split, progress=progress)

    def known_classes(self, recipe, data):
        """The names of the classes that scores are of."""
        return recipe.data.class_names

    def require_recipe(self, recipe):
        super().require_recipe(recipe)
        data = self.data(recipe)
        if data.image_shape != recipe.data.image_shape:
            raise ConfigError(
                f"protocol {self.section_name!r} has images of {data.image_shape}, the model takes "
                f"{recipe.data.image_shape}. It is for models trained on images of that shape."
            )
        known = self.known_classes(recipe, data)
        if tuple(data.class_names) != tuple(known):
            raise ConfigError(
                f"protocol {self.section_name!r} has the classes {', '.join(data.class_names)}. "
                f"Received: a model of {', '.join(known)}"
            )

    def require_width(self, scores, data):
        """Errors: `ConfigError` for scores of another number of classes than the data have."""
        if scores.shape[-1] != data.num_classes:
            raise ConfigError(
                f"protocol {self.section_name!r} has images of {data.num_classes} classes. "
                f"Received: a model of {scores.shape[-1]}"
            )

    def number(self, subject, progress):
        data, split = self.data(subject.recipe), self.open(subject.recipe)
        progress.begin(self.section_name, len(split))
        scores, labels = self.predict(subject.model, split, progress)
        self.require_width(scores, data)
        mistakes = int(wrong(scores, labels).sum())
        return {
            "value": mistakes / len(split),
            "interval": wilson(mistakes, len(split)),
            "wrong": mistakes,
            "n": len(split),
            "data": data.set_name,
            "fingerprint": split.fingerprint(),
        }


@section("protocol", "test_error")
@dataclasses.dataclass(frozen=True)
class OwnError(ShareOfWrong):
    """The test split of the preset's own data set, unaugmented.

    Where an image has several labels it is right only if all of them are its highest scores.
    """

    source: typing.ClassVar[str] = "Sabour et al. 2017, Table 1"


@section("protocol", "test_error_multicrop")
@dataclasses.dataclass(frozen=True)
class MulticropError(ShareOfWrong):
    """As `test_error`, with scores averaged over 13 crops of each image, or as many as its size leaves."""

    source: typing.ClassVar[str] = "Hinton et al. 2018, section 5: 1.4 %"

    def data(self, recipe):
        if not isinstance(recipe.data, CroppedImages):
            raise ConfigError(NOT_CROPPED)
        return recipe.data

    def predict(self, model, split, progress):
        return predict_crops(model, split, progress=progress)


@dataclasses.dataclass(frozen=True)
class ViewpointError(ShareOfWrong):
    """Test images seen from `views`, for a model that was trained on the familiar ones."""

    source: typing.ClassVar[str] = "Hinton et al. 2018, section 5.1 and Table 2"
    views: typing.ClassVar[str]

    def data(self, recipe):
        trained, received = self.views.replace("novel", "familiar"), recipe.data.views
        if received != trained:
            raise ConfigError(
                f"{self.views!r} is for a model trained with data.views={trained!r}. Received: data.views={received!r}"
            )
        return dataclasses.replace(recipe.data, views=self.views)


FamiliarAzimuths = variant(
    ViewpointError,
    "familiar_azimuths",
    "Test images from familiar azimuths, which the model was trained on; in smallNORB -60 to 40 degrees.",
    views="familiar azimuth",
)
NovelAzimuths = variant(
    ViewpointError,
    "novel_azimuths",
    "Test images from novel azimuths, for a model that was trained on the others; in smallNORB 60 to 280 degrees.",
    views="novel azimuth",
)
FamiliarElevations = variant(
    ViewpointError,
    "familiar_elevations",
    "Test images from familiar elevations, which the model was trained on; in smallNORB 30 to 40 degrees.",
    views="familiar elevation",
)
NovelElevations = variant(
    ViewpointError,
    "novel_elevations",
    "Test images from novel elevations, for a model that was trained on lower ones; in smallNORB 45 to 70 degrees.",
    views="novel elevation",
)


@section("protocol", "expanded_mnist")
@dataclasses.dataclass(frozen=True)
class ExpandedMnistError(ShareOfWrong):
    """MNIST's test digits in the middle of 40x40, by which a net for affNIST is stopped.

    Differs from the paper: by the authors' code its test digits are shifted by up to 6 pixels, as those for training.
    """

    source: typing.ClassVar[str] = "Sabour et al. 2017, section 5.2"

    def data(self, recipe):
        return Mnist(pad=6, shift=6)


@section("protocol", "affnist")
@dataclasses.dataclass(frozen=True)
class AffnistError(ShareOfWrong):
    """affNIST's test set, 320,000 affine digits of 40x40, for a net trained on expanded MNIST only."""

    source: typing.ClassVar[str] = "Sabour et al. 2017, section 5.2"

    def data(self, recipe):
        return Affnist()


@section("protocol", "affnist_synth")
@dataclasses.dataclass(frozen=True)
class AffnistSynthError(ShareOfWrong):
    """Our own affine digits made from MNIST's test set with affNIST's ranges; not affNIST itself."""

    source: typing.ClassVar[str] = "after Sabour et al. 2017, section 5.2"

    def data(self, recipe):
        return AffnistSynth()


@section("protocol", "multimnist")
@dataclasses.dataclass(frozen=True)
class MultiMnistError(ShareOfWrong):
    """MultiMNIST's test pairs; a pair counts only when both digits are right."""

    source: typing.ClassVar[str] = "Sabour et al. 2017, section 6"

    def data(self, recipe):
        return MultiMnist()
