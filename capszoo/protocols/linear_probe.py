"""What the variables of a generative model know of classes: a linear classifier is fitted to them.

Smith et al. 2020, section 5, test it on digits that were turned or distorted in ways that the model has not seen
(Table 1), or train the model on turned digits too (figure 4):

  probe                  the test images of the preset's own data set
  probe_rotated_45, probe_rotated_90, probe_rotated_135, probe_rotated_180
                         MNIST's test digits, each turned by its own angle, uniform up to so many degrees either way
  probe_rotated_45_refitted, probe_rotated_90_refitted, probe_rotated_135_refitted, probe_rotated_180_refitted
                         the same, of a classifier that is fitted to training digits turned by up to as many degrees
  probe_affnist          affNIST's test set
  probe_affnist_synth    our own affine digits, one of each of MNIST's test digits; not affNIST itself

All but the refitted are fitted to the model's own training images, unaugmented. The paper does not say which of the two
is its Table 1 ("model trained on MNIST and evaluated on rotated MNIST"): poses help there more with turned digits than
with upright ones, as ours do where the classifier has seen turned digits; fitted to upright ones ours harm from 90
degrees on. But its autoencoder's accuracies are like ours where the classifier has seen upright digits only.

The classifier sees poses and the logits of presences (the row t^0, A^0 of the table, and for an autoencoder its mean
and deviation); with `presence_` before the name the logits alone (the row t^0).

affNIST's images are 40x40, so models for it are trained on digits on such a canvas (`data.pad=6`), and turned digits
are put on it for them.
"""

import dataclasses
import functools
import typing

import numpy as np

from capszoo.config import ConfigError
from capszoo.data import Affnist, AffnistSynth, RotatedMnist
from capszoo.data.dataset import DataSet
from capszoo.data.split import Split
from capszoo.extras import extra
from capszoo.progress import QUIET
from capszoo.protocols.capsule_outputs import capsule_outputs
from capszoo.protocols.fitted_classifier import FittedClassifierError, FittedData, variants


def turned_digits(recipe, max_angle, refitted=False):
    """MNIST's test digits, each turned by its own angle up to `max_angle` degrees, on the canvas of the preset's data.

    where:
      refitted: the classifier is fitted to the same training digits as otherwise, but each turned by its own angle too.

    Errors: `ConfigError` for images other than 28x28 or 40x40, and to refit for other data than MNIST.
    """
    canvas = recipe.data.image_shape
    if canvas not in ((28, 28, 1), (40, 40, 1)):
        raise ConfigError(f"turned digits are 28x28, or on 40x40. Received a model for images of {canvas}.")
    pad = (canvas[0] - 28) // 2
    tested = OnCanvas(RotatedMnist(max_angle=max_angle), pad)
    if not refitted:
        return FittedData(tested, recipe.data)
    if recipe.data.section_name not in ("mnist", "rotated_mnist"):
        raise ConfigError(f"refitted probes are of models of MNIST. Received: {recipe.data.section_name!r}")
    return FittedData(tested, OnCanvas(RotatedMnist(recipe.data.validation, max_angle), pad))


@dataclasses.dataclass(frozen=True)
class OnCanvas:
    """A data set whose images get `pad` pixels of black on each side."""

    data: DataSet
    pad: int

    @property
    def set_name(self):
        return self.data.set_name

    @property
    def image_shape(self):
        height, width, channels = self.data.image_shape
        return height + 2 * self.pad, width + 2 * self.pad, channels

    @property
    def num_classes(self):
        return self.data.num_classes

    @property
    def class_names(self):
        return self.data.class_names

    def open(self, split):
        """Errors: those of the data set."""
        return _Padded(self.data.open(split), self.pad)


class _Padded(Split):
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


@dataclasses.dataclass(frozen=True)
class LinearProbeError(FittedClassifierError):
    """The test error of a linear classifier: multinomial logistic regression.

    Its features are the outputs `logits` and `poses`, as far as a model has them, or its `code`, side by side, each
    number brought to mean 0 and deviation 1. Scores are probabilities. It minimises the mean cross-entropy of N images
    plus |W|^2 / (2 N), in double precision and until no partial derivative exceeds 1e-6: stopped at 1e-4, where
    scikit-learn stops, features that differ by one part in a million, as processors do, changed a dozen of 10,000
    predictions.

    Errors: `ConfigError` for a model without any of `outputs`, and for several labels per image.
    Source: Smith et al. 2020, section 5.1 ("linear classification"); no more is said of the classifier.
    """

    source: typing.ClassVar[str] = "Smith et al. 2020, section 5, Table 1 and figure 4"
    metric: typing.ClassVar[str] = "linear probe test error"
    outputs: typing.ClassVar[tuple[str, ...]] = ("logits", "poses", "code")

    def features(self, model, split, progress=QUIET):
        outputs, labels = capsule_outputs(model, split, self.outputs, progress=progress)
        names = [name for name in self.outputs if name in outputs]
        columns = [outputs[name].reshape(len(labels), -1) for name in names]
        return np.concatenate(columns, axis=-1, dtype=np.float64), labels

    def unfitted(self):
        with extra("train"):
            from sklearn.linear_model import LogisticRegression
            from sklearn.pipeline import make_pipeline
            from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(), LogisticRegression(tol=1e-6, max_iter=10_000))

    def scores(self, classifier, features):
        return classifier.predict_proba(features)


_DATA = {
    "probe": (
        "The preset's own data set: fitted to its training images, unaugmented, and tested on its test images.",
        lambda recipe: FittedData(recipe.data, recipe.data),
    ),
    **{
        f"probe_rotated_{angle}": (
            f"Fitted to the preset's own training images, tested on digits turned by up to {angle} degrees (Table 1).",
            functools.partial(turned_digits, max_angle=float(angle)),
        )
        for angle in (45, 90, 135, 180)
    },
    **{
        f"probe_rotated_{angle}_refitted": (
            f"Fitted to training digits turned by up to {angle} degrees, tested on test digits turned alike (Table 1).",
            functools.partial(turned_digits, max_angle=float(angle), refitted=True),
        )
        for angle in (45, 90, 135, 180)
    },
    "probe_affnist": (
        "Fitted to the preset's own training images, tested on affNIST's test set (Table 1).",
        lambda recipe: FittedData(Affnist(), recipe.data),
    ),
    "probe_affnist_synth": (
        "As `probe_affnist`, on 10,000 affine digits of our own made from MNIST's test set; not affNIST itself.",
        lambda recipe: FittedData(AffnistSynth(transforms=1), recipe.data),
    ),
}
variants(LinearProbeError, _DATA, "presence", "on the logits of presences alone", ("logits",))
