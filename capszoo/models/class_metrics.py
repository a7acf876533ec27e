"""Metrics of somebody's own: they see scores and which classes an image has, whatever the loss compares these with."""

import keras
from keras import ops

from capszoo.models.objective import set_accuracy


class OfClasses(keras.metrics.Metric):
    """A Keras metric of `scores [B, O]` and of 1 for each class of an image, 0 for the others.

    Targets of a loss may be others, such as the margins of the spread loss. A sparse metric gets the class, `[B]`. An
    image without a valid label, whose targets are NaN, has for metrics the class of its lowest score.

    where:
      metric: as `compile` takes it: a name, a function or a `keras.metrics.Metric`. "accuracy" is the
        `set_accuracy` that training reports.
      labels_per_image: classes of an image.

    Errors: `ValueError` for a sparse metric of several classes.
    """

    def __init__(self, metric, labels_per_image=1):
        known = _metric(metric)
        super().__init__(name=metric if isinstance(metric, str) else known.name)
        self.metric = known
        # By this Keras' callbacks know whether more is better.
        if hasattr(known, "_direction"):
            self._direction = known._direction
        self.sparse = "sparse" in f"{type(known).__name__} {known.name}".lower()
        if self.sparse and labels_per_image != 1:
            raise ValueError(f"{known.name} is of one class for an image. Received: {labels_per_image}")

    def update_state(self, targets, scores, sample_weight=None):
        targets = ops.cast(targets, scores.dtype)
        unknown = ops.any(ops.isnan(targets), axis=-1, keepdims=True)
        targets = ops.where(unknown, _of_lowest(scores), targets)
        classes = ops.argmax(targets, axis=-1) if self.sparse else ops.cast(targets > 0, scores.dtype)
        return self.metric.update_state(classes, scores, sample_weight=sample_weight)

    def result(self):
        return self.metric.result()

    def reset_state(self):
        self.metric.reset_state()


def _of_lowest(scores):
    """One-hot rows of the lowest scores, the last of equal ones: where `argmax` takes the first, these are wrong."""
    count = scores.shape[-1]
    return ops.one_hot(count - 1 - ops.argmin(ops.flip(scores, axis=-1), axis=-1), count, dtype=scores.dtype)


def _metric(metric):
    """A name, function or metric as a metric; what Keras understands by accuracy depends on targets."""
    if metric in ("accuracy", "acc"):
        return share_of_right(set_accuracy, metric)
    known = keras.metrics.get(metric)
    if isinstance(known, keras.metrics.Metric):
        return known
    return keras.metrics.MeanMetricWrapper(known, name=known.__name__)


def share_of_right(function, name):
    """The mean of `function(targets, scores)`, of which more is better: Keras' callbacks need no `mode`."""
    metric = keras.metrics.MeanMetricWrapper(function, name=name)
    metric._direction = "up"
    return metric
