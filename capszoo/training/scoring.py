"""What a model makes of a whole split, class scores or reconstructions, and the errors in them."""

import numpy as np

from capszoo.data.pipeline import evaluation_batches
from capszoo.progress import QUIET


def predict_split(model, split, batch_size=250, progress=QUIET):
    """Scores `[N, O]` and labels `[N]` or `[N, k]` of every image of `split`, in order, without augmentation.

    `progress` advances by the images of each batch.
    """
    scores, labels = [], []
    for batch in evaluation_batches(split, batch_size):
        scores.append(np.asarray(model.predict_on_batch(batch["images"])["scores"]))
        labels.append(batch["labels"])
        progress.advance(len(batch["images"]))
    return np.concatenate(scores), np.concatenate(labels)


def wrong(scores, labels):
    """True for each image unless every class of its own has a higher score than every other class.

        right = min_{k in classes} score_k > max_{k not in classes} score_k

    A tie with another class, and a score that is no number, is wrong: whoever cannot tell does not know.

    where:
      scores: `[N, O]`.
      labels: `[N]`, or `[N, k]` for k different classes of an image; all k must be right (Sabour et al. 2017,
        section 6).

    Errors: `ValueError` for labels that are none of the O classes.
    """
    scores, labels = np.asarray(scores), np.asarray(labels).reshape(len(scores), -1)
    if labels.size and not (labels.min() >= 0 and labels.max() < scores.shape[1]):
        raise ValueError(
            f"labels must be in [0, {scores.shape[1]}). Received: {labels.min()} to {labels.max()}"
        )
    own = np.zeros(scores.shape, bool)
    np.put_along_axis(own, labels, True, axis=-1)
    # The least and the greatest of numbers of which one is not a number are not either, and compare as false.
    return ~(np.where(own, scores, np.inf).min(axis=-1) > np.where(own, -np.inf, scores).max(axis=-1))


def squared_errors(model, split, batch_size=250):
    """Squared errors of the reconstructions, and what they would be of black ones, both `[N]` and summed over pixels.

        error = sum (x - x_hat)^2,  of_black = sum x^2

    where:
      x: each image of `split` `[H, W, C]`, in [0, 1], in order and without augmentation.
      x_hat: its `reconstruction` by `model`.

    Rawlinson et al. 2018, section 3.5, gives the mean error ("batch mean square error").
    """
    errors, of_black = [], []
    for batch in evaluation_batches(split, batch_size):
        images = batch["images"]
        deviations = images - np.asarray(model.predict_on_batch(images)["reconstruction"])
        for values, squares in ((errors, deviations**2), (of_black, images**2)):
            values.append(squares.reshape(len(images), -1).sum(axis=-1, dtype="float64"))
    return np.concatenate(errors), np.concatenate(of_black)
