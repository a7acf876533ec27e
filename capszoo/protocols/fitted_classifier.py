"""Classifiers fitted to the outputs of networks that were trained without labels, and their test errors."""

import abc
import dataclasses
import functools
import hashlib
import logging
import typing
from collections.abc import Callable

import numpy as np

from capszoo.data.dataset import DataSet
from capszoo.data.split import Split
from capszoo.models.architecture import Architecture
from capszoo.progress import QUIET
from capszoo.protocols.capsule_outputs import once
from capszoo.protocols.classification import ShareOfWrong
from capszoo.protocols.protocol import variant

LOGGER = logging.getLogger(__name__)


class Rows(Split):
    """Some rows of a split, in the given order.

    where:
      rows: their indices.
      fitting: the split that a classifier is fitted to before it is tested on these rows, or None.
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
        """SHA-256 of the split, the rows and what a classifier is fitted to."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self):
        digest = hashlib.sha256(self.split.fingerprint().encode() + self.rows.astype("<i8").tobytes())
        if self.fitting is not None:
            digest.update(self.fitting.fingerprint().encode())
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class FittedData:
    """The images that a classifier is tested on, and those that it is fitted to, as a data set of one split, "test".

    where:
      tested: the data set whose test split it is tested on.
      fitted: the data set whose training split it is fitted to, unaugmented.
    """

    tested: DataSet
    fitted: DataSet

    @property
    def set_name(self) -> str:
        return self.tested.set_name

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.tested.image_shape

    @property
    def num_classes(self) -> int:
        return self.tested.num_classes

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.tested.class_names

    def open(self, split) -> Rows:
        """The images for testing; their `fitting` is a split too. Errors: those of the data sets."""
        images = self.tested.open(split)
        return Rows(images, np.arange(len(images)), self.fitted.open("train"))


@dataclasses.dataclass(frozen=True)
class FittedClassifierError(ShareOfWrong):
    """The test error of a classifier that is fitted to outputs of the network; a subclass says how.

    where:
      choose: the `FittedData` of a recipe.
      outputs: names of the outputs that the classifier sees.
    """

    role: typing.ClassVar[type] = Architecture
    choose: typing.ClassVar[Callable]
    outputs: typing.ClassVar[tuple[str, ...]]

    def data(self, recipe):
        return self.choose(recipe)

    def known_classes(self, recipe, data):
        """Of what the classifier is fitted to: the network was trained without labels."""
        return (data.fitted or data.tested).class_names

    def require_width(self, scores, data):
        """Scores are of the classes of which there are images: a classifier knows no others."""

    @abc.abstractmethod
    def features(self, model, split, progress=QUIET):
        """What the classifier sees of every image of `split`, in order, unaugmented: `[N, D]`, and labels `[N]`."""

    @abc.abstractmethod
    def unfitted(self):
        """A classifier of scikit-learn."""

    @abc.abstractmethod
    def scores(self, classifier, features):
        """Scores `[N, classes]` of the classes that the classifier knows."""

    def fitted(self, model, split):
        """The classifier, fitted to the features of `split`; once for all protocols that are fitted to the same.

        Errors: see `features`.
        """

        def fit():
            LOGGER.info("%s: outputs for %d images ...", self.metric, len(split))
            features, labels = self.features(model, split)
            LOGGER.info("%s: fitting ...", self.metric)
            return self.unfitted().fit(features, labels)

        return once(model, split, (self.metric, self.outputs), fit)

    def predict(self, model, split, progress=QUIET):
        """Scores `[N, classes]` and labels `[N]` of the images of `Rows`, after the classifier is fitted.

        Errors: see `features`.
        """
        classifier = self.fitted(model, split.fitting)
        features, truth = self.features(model, split.tested, progress)
        # A class of which nothing was fitted is never named.
        scores = np.zeros((len(truth), 1 + max(classifier.classes_.max(), truth.max())))
        scores[:, classifier.classes_] = self.scores(classifier, features)
        return scores, truth


def variants(base, data_sets, prefix, difference, outputs):
    """Registers `base` for every data set, and once more with `prefix` before the name.

    where:
      data_sets: `{name: (promise, choose)}`.
      difference, outputs: what the classifier sees under the longer name, in words and as `outputs`.
    """
    for name, (promise, choose) in data_sets.items():
        shared = {"choose": staticmethod(choose)}
        variant(base, name, promise, **shared)
        variant(base, f"{prefix}_{name}", f"As `{name}`, {difference}.", **shared, outputs=outputs)
