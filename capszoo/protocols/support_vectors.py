"""What capsules know of classes that nobody told them: a support vector machine is fitted to their poses.

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
import functools
import hashlib
import logging
import typing
from collections.abc import Callable

import numpy as np

from capszoo.config import ConfigError
from capszoo.data import Affnist, AffnistSynth
from capszoo.data.dataset import DataSet
from capszoo.data.split import Split
from capszoo.extras import extra
from capszoo.models.architecture import Architecture
from capszoo.progress import QUIET
from capszoo.protocols.capsule_outputs import capsule_outputs, once
from capszoo.protocols.classification import ShareOfWrong
from capszoo.protocols.protocol import variant

LOGGER = logging.getLogger(__name__)
# Of the authors' code.
MACHINE = {"kernel": "rbf", "C": 100.0, "gamma": 0.1, "tol": 1e-3}
# Of each base digit so many images; and one digit of so many is tested.
IMAGES = 7


@dataclasses.dataclass(frozen=True)
class HeadData:
    """The images that a machine is tested on, and those that it is fitted to, as a data set of one split, "test".

    where:
      tested: the data set whose test split it is tested on; affine digits only partly, see above.
      fitted: the data set whose training split it is fitted to; None takes the rest of the affine digits.
    """

    tested: DataSet
    fitted: DataSet | None = None

    @property
    def section_name(self) -> str:
        return self.tested.section_name

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.tested.image_shape

    def open(self, split):
        """The images for testing; their `fitting` is a split too. Errors: those of the data sets; `ConfigError`."""
        images = self.tested.open(split)
        rows, others = np.arange(len(images)), None
        if isinstance(self.tested, Affnist | AffnistSynth):
            rows, others = divide(_digits(self.tested, images))
        fitting = Rows(images, others) if self.fitted is None else self.fitted.open("train")
        return Rows(images, rows, fitting)


class Rows(Split):
    """Some rows of a split, in the given order.

    where:
      rows: their indices.
      fitting: the split that a head is fitted to before it is tested on these rows, or None.
    """

    def __init__(self, split, rows, fitting=None):
        self.split, self.rows, self.fitting = split, rows, fitting

    def __len__(self):
        return len(self.rows)

    def batch(self, indices, rng=None):
        """The images at `rows[indices]`."""
        return self.split.batch(self.rows[indices], rng)

    @property
    def tested(self):
        """The same rows without what is fitted: whose outputs do not depend on it."""
        return Rows(self.split, self.rows)

    def fingerprint(self):
        """SHA-256 of the split, the rows and what a head is fitted to."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self):
        digest = hashlib.sha256(self.split.fingerprint().encode() + self.rows.astype("<i8").tobytes())
        if self.fitting is not None:
            digest.update(self.fitting.fingerprint().encode())
        return digest.hexdigest()


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


def pose_features(model, split, masked=False, progress=QUIET):
    """Poses `[N, O * D]` and labels `[N]` of every image of `split`, in order, without augmentation.

    where:
      masked: multiply the poses by the output `presence`.
      progress: as in `capsule_outputs`.

    Errors: `ConfigError` for `masked` with a model that has no presence, and for several labels per image.
    """
    needed = ("presence",) if masked else ("poses",)
    outputs, labels = capsule_outputs(model, split, needed, progress=progress)
    poses = outputs["poses"].reshape(*outputs["poses"].shape[:2], -1)
    if masked:
        poses = poses * outputs["presence"][..., None]
    return poses.reshape(len(poses), -1), labels


def predict_svm(model, split, progress=QUIET, masked=False):
    """Scores `[N, classes]`, 1 for the class that the machine names, and labels `[N]`, as `predict_split`.

    A support vector machine with the kernel exp(-0.1 |x - y|^2) and C = 100 is fitted to poses of `split.fitting`
    first, which takes minutes for 60,000 images; once for all protocols that are fitted to the same.

    Errors: see `pose_features`.
    Source: Rawlinson et al. 2018, section 3; kernel and constants from the authors' code.
    """
    machine = once(model, split.fitting, f"svm {masked}", lambda: _fit(model, split.fitting, masked))
    features, truth = pose_features(model, split.tested, masked, progress)
    classes = 1 + max(machine.classes_.max(), truth.max())
    return np.eye(classes)[machine.predict(features)], truth


def _fit(model, split, masked):
    with extra("train"):
        from sklearn.svm import SVC

    LOGGER.info("poses of %d images, to which a support vector machine is fitted ...", len(split))
    features, labels = pose_features(model, split, masked)
    LOGGER.info("fitting ...")
    return SVC(**MACHINE, cache_size=1000).fit(features, labels)


@dataclasses.dataclass(frozen=True)
class SupportVectorError(ShareOfWrong):
    """The test error of a support vector machine on poses; see `predict_svm`.

    where:
      choose: the `HeadData` of a recipe.
      masked: multiply the poses by the output `presence`.
    """

    source: typing.ClassVar[str] = "Rawlinson et al. 2018, section 3.1 and Table 1"
    metric: typing.ClassVar[str] = "SVM test error"
    role: typing.ClassVar[type] = Architecture
    choose: typing.ClassVar[Callable]
    masked: typing.ClassVar[bool] = False

    def data(self, recipe):
        return self.choose(recipe)

    def predict(self, model, split, progress):
        return predict_svm(model, split, progress, self.masked)


_DATA = {
    "svm": (
        "The preset's own data set: fitted to its training images, unaugmented, and tested on its test images.",
        lambda recipe: HeadData(recipe.data, recipe.data),
    ),
    "svm_affnist": (
        "affNIST: fitted to most digits of its test set, tested on the others; the network has seen none (Table 1, a).",
        lambda recipe: HeadData(Affnist()),
    ),
    "svm_affnist_synth": (
        "As `svm_affnist`, on our own affine digits made from MNIST's test set; not affNIST itself.",
        lambda recipe: HeadData(AffnistSynth(transforms=IMAGES)),
    ),
    "svm_transfer_affnist": (
        "Fitted to the preset's own training images, tested on the affNIST images of `svm_affnist` (Table 1, b).",
        lambda recipe: HeadData(Affnist(), recipe.data),
    ),
    "svm_transfer_affnist_synth": (
        "As `svm_transfer_affnist`, on our own affine digits made from MNIST's test set; not affNIST itself.",
        lambda recipe: HeadData(AffnistSynth(transforms=IMAGES), recipe.data),
    ),
}
for _name, (_promise, _choose) in _DATA.items():
    variant(SupportVectorError, _name, _promise, choose=staticmethod(_choose))
    variant(
        SupportVectorError,
        f"masked_{_name}",
        f"As `{_name}`, on masked poses.",
        choose=staticmethod(_choose),
        masked=True,
    )
