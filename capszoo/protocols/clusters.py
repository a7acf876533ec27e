"""Unsupervised classification: images are clustered, and each cluster is told the name of one class.

Kosiorek et al. 2019, section 3.1 ("LIN-MATCH"): k-means with as many clusters as there are classes finds clusters of
the training images; what assignment of clusters to classes is best, one to one, is all that labels are used for.

  clusters              of what each object explains of an image, the output `explained`
  presence_clusters     of the presences that the network infers, the output `presence`
"""

import dataclasses
import typing

import numpy as np

from capszoo.extras import extra
from capszoo.progress import QUIET
from capszoo.protocols.capsule_outputs import capsule_outputs
from capszoo.protocols.fitted_classifier import FittedClassifierError, FittedData, variants

# Beginnings of k-means, of which the best is kept.
STARTS = 10


class NamedClusters:
    """Clusters, each with the name of one class; no class has two.

    where:
      classes_: the classes `[K]`; there are as many clusters.

    It is fitted and asked like a classifier of scikit-learn.
    """

    def fit(self, features, labels):
        """Finds K clusters of `features[N, D]`, and names them so that most of `labels[N]` are right."""
        with extra("train"):
            from scipy.optimize import linear_sum_assignment
            from sklearn.cluster import KMeans

        self.classes_, targets = np.unique(labels, return_inverse=True)
        count = len(self.classes_)
        self._clusters = KMeans(count, n_init=STARTS, random_state=0).fit(features)
        shared = np.zeros((count, count), dtype=np.int64)
        np.add.at(shared, (self._clusters.labels_, targets), 1)
        _, self._class_of = linear_sum_assignment(shared, maximize=True)
        return self

    def predict(self, features):
        """The name of the cluster whose middle is nearest to each of `features[N, D]`: `[N]`."""
        return self.classes_[self._class_of[self._clusters.predict(features)]]


@dataclasses.dataclass(frozen=True)
class ClusterError(FittedClassifierError):
    """The test error of clusters that are told the names of classes. Scores are 1 for the class of the nearest cluster.

    Errors: `ConfigError` for a model without any of `outputs`, and for several labels per image.
    Source: Kosiorek et al. 2019, section 3.1.
    Differs from the authors' code: that assigns clusters to classes anew for the images that it tests.
    """

    source: typing.ClassVar[str] = "Kosiorek et al. 2019, section 3.1 and its table"
    metric: typing.ClassVar[str] = "error of named clusters"
    outputs: typing.ClassVar[tuple[str, ...]] = ("explained",)

    def features(self, model, split, progress=QUIET):
        outputs, labels = capsule_outputs(model, split, self.outputs, progress=progress)
        (name,) = self.outputs
        return outputs[name], labels

    def unfitted(self):
        return NamedClusters()

    def scores(self, classifier, features):
        return classifier.predict(features)[:, None] == classifier.classes_


_DATA = {
    "clusters": (
        "The preset's own data set: clusters of its training images, unaugmented, tested on its test images.",
        lambda recipe: FittedData(recipe.data, recipe.data),
    ),
}
variants(ClusterError, _DATA, "presence", "of presences that the network infers", ("presence",))
