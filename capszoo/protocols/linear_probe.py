"""What the variables of a generative model know of classes: a linear classifier is fitted to them.

Smith et al. 2020, section 5, fit it to a model's own training images, upright digits, and test it on digits that were
turned or distorted (Table 1), or train the model on turned digits too (figure 4):

  probe                  the test images of the preset's own data set
  probe_rotated_45, probe_rotated_90, probe_rotated_135, probe_rotated_180
                         MNIST's test digits, each turned by its own angle, uniform up to so many degrees either way
  probe_affnist          affNIST's test set
  probe_affnist_synth    our own affine digits, one of each of MNIST's test digits; not affNIST itself

The classifier sees poses and the logits of presences (the row t^0, A^0 of the table, and for an autoencoder its mean
and deviation); with `presence_` before the name the logits alone (the row t^0).

affNIST's images are 40x40, so models for it are trained on digits on such a canvas (`data.pad=6`), and turned digits
are put on it for them.
"""

import dataclasses
import functools
import logging
import typing
from collections.abc import Callable

import numpy as np

from capszoo.config import ConfigError
from capszoo.data import Affnist, AffnistSynth, RotatedMnist
from capszoo.data.dataset import DataSet
from capszoo.data.split import Split
from capszoo.extras import extra
from capszoo.models.architecture import Architecture
from capszoo.progress import QUIET
from capszoo.protocols.capsule_outputs import capsule_outputs, once
from capszoo.protocols.classification import ShareOfWrong
from capszoo.protocols.protocol import variant
from capszoo.protocols.support_vectors import Rows

LOGGER = logging.getLogger(__name__)


def turned_digits(recipe, max_angle):
    """MNIST's test digits, each turned by its own angle up to `max_angle` degrees, on the canvas of the preset's data.

    Errors: `ConfigError` for images other than 28x28 or 40x40.
    """
    canvas = recipe.data.image_shape
    if canvas not in ((28, 28, 1), (40, 40, 1)):
        raise ConfigError(f"turned digits are 28x28, or on 40x40. Received a model for images of {canvas}.")
    return ProbeData(RotatedMnist(max_angle=max_angle), recipe.data, pad=(canvas[0] - 28) // 2)


@dataclasses.dataclass(frozen=True)
class ProbeData:
    """The images that a classifier is tested on, and those that it is fitted to, as a data set of one split, "test".

    where:
      tested: the data set whose test split it is tested on.
      fitted: the data set whose training split it is fitted to, unaugmented.
      pad: pixels of black that tested images get on each side.
    """

    tested: DataSet
    fitted: DataSet
    pad: int = 0

    @property
    def section_name(self) -> str:
        return self.tested.section_name

    @property
    def image_shape(self) -> tuple[int, int, int]:
        height, width, channels = self.tested.image_shape
        return height + 2 * self.pad, width + 2 * self.pad, channels

    def open(self, split):
        """The images for testing; their `fitting` is a split too. Errors: those of the data sets."""
        images = self.tested.open(split)
        return Rows(_Framed(images, self.pad), np.arange(len(images)), self.fitted.open("train"))


class _Framed(Split):
    """The images of a split with `pad` pixels of black around them."""

    def __init__(self, split, pad):
        self.split, self.pad = split, pad

    def __len__(self):
        return len(self.split)

    def batch(self, indices, rng=None):
        batch = self.split.batch(indices, rng)
        frame = ((0, 0), (self.pad, self.pad), (self.pad, self.pad), (0, 0))
        return {**batch, "images": np.pad(batch["images"], frame)}

    def fingerprint(self):
        return self.split.fingerprint() if not self.pad else f"{self.split.fingerprint()}+{self.pad}"


def probe_features(model, split, presence_only=False, progress=QUIET):
    """What a classifier sees of every image of `split`, in order and without augmentation: `[N, D]`, and labels `[N]`.

    where:
      presence_only: the output `logits` alone; otherwise poses `[N, O, ...]` too, which is all that a model without
        logits has; of a model without capsules its `code`.
      progress: as in `capsule_outputs`.

    Errors: `ConfigError` for `presence_only` with a model that has no logits, and for several labels per image.
    """
    needed = ("logits",) if presence_only else ("logits", "poses", "code")
    outputs, labels = capsule_outputs(model, split, needed, progress=progress)
    names = [name for name in needed if name in outputs]
    return np.concatenate([outputs[name].reshape(len(labels), -1) for name in names], axis=-1), labels


def predict_probe(model, split, progress=QUIET, presence_only=False):
    """Scores `[N, classes]`, probabilities, and labels `[N]`, as `predict_split`.

    The classifier is fitted to `split.fitting` first. Errors: see `fitted_probe`.
    """
    classifier = fitted_probe(model, split.fitting, presence_only)
    features, truth = probe_features(model, split.tested, presence_only, progress)
    # A class of which nothing was fitted is never named.
    scores = np.zeros((len(truth), 1 + max(classifier.classes_.max(), truth.max())))
    scores[:, classifier.classes_] = classifier.predict_proba(features)
    return scores, truth


def fitted_probe(model, split, presence_only=False):
    """Multinomial logistic regression on the features of `split`, each brought to mean 0 and deviation 1.

    A scikit-learn pipeline, fitted once, see `once`.

    Errors: see `probe_features`.
    Source: Smith et al. 2020, section 5.1 ("linear classification"); no more is said of the classifier.
    """
    with extra("train"):
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

    def fit():
        LOGGER.info("features of %d images, to which a linear classifier is fitted ...", len(split))
        features, labels = probe_features(model, split, presence_only)
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        return classifier.fit(features, labels)

    return once(model, split, f"probe {presence_only}", fit)


@dataclasses.dataclass(frozen=True)
class LinearProbeError(ShareOfWrong):
    """The test error of a linear classifier on poses and logits of presences; see `predict_probe`.

    where:
      choose: the `ProbeData` of a recipe.
      presence_only: on the logits alone.
    """

    source: typing.ClassVar[str] = "Smith et al. 2020, section 5, Table 1 and figure 4"
    metric: typing.ClassVar[str] = "linear probe test error"
    role: typing.ClassVar[type] = Architecture
    choose: typing.ClassVar[Callable]
    presence_only: typing.ClassVar[bool] = False

    def data(self, recipe):
        return self.choose(recipe)

    def predict(self, model, split, progress):
        return predict_probe(model, split, progress, self.presence_only)


_DATA = {
    "probe": (
        "The preset's own data set: fitted to its training images, unaugmented, and tested on its test images.",
        lambda recipe: ProbeData(recipe.data, recipe.data),
    ),
    **{
        f"probe_rotated_{angle}": (
            f"Fitted to the preset's own training images, tested on digits turned by up to {angle} degrees (Table 1).",
            functools.partial(turned_digits, max_angle=float(angle)),
        )
        for angle in (45, 90, 135, 180)
    },
    "probe_affnist": (
        "Fitted to the preset's own training images, tested on affNIST's test set (Table 1).",
        lambda recipe: ProbeData(Affnist(), recipe.data),
    ),
    "probe_affnist_synth": (
        "As `probe_affnist`, on 10,000 affine digits of our own made from MNIST's test set; not affNIST itself.",
        lambda recipe: ProbeData(AffnistSynth(transforms=1), recipe.data),
    ),
}
for _name, (_promise, _choose) in _DATA.items():
    variant(LinearProbeError, _name, _promise, choose=staticmethod(_choose))
    variant(
        LinearProbeError,
        f"presence_{_name}",
        f"As `{_name}`, on the logits of presences alone.",
        choose=staticmethod(_choose),
        presence_only=True,
    )
