"""What capsules trained without labels know of classes: a support vector machine is fitted to their poses.

Rawlinson et al. 2018, section 3.1, test a network that was trained on MNIST without labels in two ways:

  (a) svm_affnist            the machine is fitted to poses of affNIST digits, and tested on those of others
  (b) svm_transfer_affnist   the machine is fitted to poses of the network's own training images
  svm                        both own: the column "MNIST" of Table 1

likewise with affnist_synth, our own affine digits. Where a name begins with `masked_`, poses are multiplied by the
mask, as in the paper's text (equation 4); in the authors' code they are not.

In (a) and (b) seven images of each base digit are used. Every seventh digit is tested, with all its images, and no
image of such a digit is ever fitted: 60,004 images for fitting and 9,996 for testing.
Differs from the authors' code: that takes rows 0 to 59,999 of affNIST's test file and the 10,000 after them. If the
file lists digit after digit these are other digits too, otherwise the same digits on both sides.
"""

import dataclasses
import typing

import numpy as np

from capszoo.config import ConfigError
from capszoo.data import Affnist, AffnistSynth
from capszoo.data.dataset import DataSet
from capszoo.extras import extra
from capszoo.progress import QUIET
from capszoo.protocols.capsule_outputs import capsule_outputs
from capszoo.protocols.fitted_classifier import FittedClassifierError, FittedData, Rows, variants

# Of the authors' code.
MACHINE = {"kernel": "rbf", "C": 100.0, "gamma": 0.1, "tol": 1e-3}
# Of each base digit so many images; and one digit of so many is tested.
IMAGES = 7


@dataclasses.dataclass(frozen=True)
class DividedDigits(FittedData):
    """Affine digits, some of which are tested; fitted to the others, or to `fitted`.

    Errors: with `open`, `ConfigError` where the base digits are unknown.
    """

    fitted: DataSet | None = None

    def open(self, split):
        images = self.tested.open(split)
        rows, others = divide(_digits(self.tested, images))
        return Rows(images, rows, Rows(images, others) if self.fitted is None else self.fitted.open("train"))


def divide(digit):
    """Rows for testing and rows for fitting, in order, of images that were made from the base digits `digit[N]`.

    Of each digit the first seven images count. The digits 6, 13, 20 ... are tested, all others are for fitting.
    """
    by_digit = np.argsort(digit, kind="stable")
    _, first, counts = np.unique(digit[by_digit], return_index=True, return_counts=True)
    number = np.empty(len(digit), dtype=np.int64)
    number[by_digit] = np.arange(len(digit)) - np.repeat(first, counts)
    kept, tested = number < IMAGES, digit % IMAGES == IMAGES - 1
    return np.flatnonzero(kept & tested), np.flatnonzero(kept & ~tested)


def _digits(data, split):
    """Which base digit each image of a test split was made from."""
    if isinstance(data, AffnistSynth):
        return np.arange(len(split)) % (len(split) // data.transforms)
    digit = split.factors["digit"]
    if (digit < 0).any():
        raise ConfigError("the labels of this copy of affNIST do not tell which rows are of the same digit.")
    return digit


@dataclasses.dataclass(frozen=True)
class SupportVectorError(FittedClassifierError):
    """The test error of a support vector machine, with the kernel exp(-0.1 |x - y|^2) and C = 100, on poses.

    With `presence` among the outputs poses are multiplied by it. Fitting takes minutes for 60,000 images. Scores are 1
    for the class that the machine names.

    Errors: `ConfigError` for a model without the outputs, and for several labels per image.
    Source: Rawlinson et al. 2018, section 3.1 and Table 1; kernel and constants from the authors' code.
    """

    source: typing.ClassVar[str] = "Rawlinson et al. 2018, section 3.1 and Table 1"
    metric: typing.ClassVar[str] = "SVM test error"
    outputs: typing.ClassVar[tuple[str, ...]] = ("poses",)

    def features(self, model, split, progress=QUIET):
        masked = "presence" in self.outputs
        outputs, labels = capsule_outputs(
            model, split, ("presence",) if masked else self.outputs, progress=progress
        )
        poses = outputs["poses"].reshape(*outputs["poses"].shape[:2], -1)
        if masked:
            poses = poses * outputs["presence"][..., None]
        return poses.reshape(len(poses), -1), labels

    def unfitted(self):
        with extra("train"):
            from sklearn.svm import SVC

        return SVC(**MACHINE, cache_size=1000)

    def scores(self, classifier, features):
        return classifier.predict(features)[:, None] == classifier.classes_


_DATA = {
    "svm": (
        "The preset's own data set: fitted to its training images, unaugmented, and tested on its test images.",
        lambda recipe: FittedData(recipe.data, recipe.data),
    ),
    "svm_affnist": (
        "affNIST: fitted to most digits of its test set, tested on the others; the network has seen none (Table 1, a).",
        lambda recipe: DividedDigits(Affnist()),
    ),
    "svm_affnist_synth": (
        "As `svm_affnist`, on our own affine digits made from MNIST's test set; not affNIST itself.",
        lambda recipe: DividedDigits(AffnistSynth(transforms=IMAGES)),
    ),
    "svm_transfer_affnist": (
        "Fitted to the preset's own training images, tested on the affNIST images of `svm_affnist` (Table 1, b).",
        lambda recipe: DividedDigits(Affnist(), recipe.data),
    ),
    "svm_transfer_affnist_synth": (
        "As `svm_transfer_affnist`, on our own affine digits made from MNIST's test set; not affNIST itself.",
        lambda recipe: DividedDigits(AffnistSynth(transforms=IMAGES), recipe.data),
    ),
}
variants(SupportVectorError, _DATA, "masked", "on masked poses", ("poses", "presence"))
