"""Scores that are probabilities, where training determines their differences only."""

import numpy as np

from capszoo.losses.cross_entropy import GREATEST, LEAST
from capszoo.models.architecture import ShiftsScores

IMAGES, BATCH = 2000, 250
# The logits that a float32 can tell lie between -87 and 17.
LIMIT = 128.0
# Halvings of the interval, after which it is as narrow as a double can tell.
HALVINGS = 60


def calibrate(recipe, model):
    """Shifts the logits of all scores, so that in each image one class is present on average; else changes nothing.

        mean_n sum_i 1 / (1 + exp(-(x_ni + c))) = 1,   x = log(a / (1 - a))

    where:
      a: scores `[N, classes]` of 2,000 training images, as evaluation sees them; evenly spaced, since data sets may
        come one class after the other.
      c: what `model.shift` adds. The classes an image is given to stay the same.

    A softmax of the logits, and so its cross-entropy, does not depend on c, and after long training all scores may be
    1e-12: as probabilities they mean nothing, and ONNX Runtime, whose sigmoid ends at 1.5e-8, cannot tell them apart.
    With the mean, c is that of the greatest likelihood of classes that are present or not by themselves.
    """
    if not recipe.model.has(ShiftsScores):
        return
    split = recipe.data.open("train")
    count = min(IMAGES, len(split))
    chosen = np.arange(count) * len(split) // count
    batches = [split.batch(chosen[first : first + BATCH], None) for first in range(0, count, BATCH)]
    scores = [model.predict_on_batch(batch["images"])["scores"] for batch in batches]
    recipe.model.shift(model, _shift(np.concatenate(scores)))


def _shift(scores):
    """c of scores `[N, classes]`, by bisection: the sum rises with c."""
    scores = np.clip(np.asarray(scores, "float64"), LEAST, GREATEST)
    logits = np.log(scores) - np.log1p(-scores)
    low, high = -LIMIT, LIMIT
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        present = (1 / (1 + np.exp(-(logits + middle)))).sum(axis=1).mean()
        low, high = (middle, high) if present < 1 else (low, middle)
    return middle
