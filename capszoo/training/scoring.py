"""What a model makes of a whole split, class scores or reconstructions, and the errors in them."""

import numpy as np

from capszoo.data.pipeline import evaluation_batches


def predict_split(model, split, batch_size=250, progress=None):
    """Scores `[N, O]` and labels `[N]` or `[N, k]` of every image of `split`, in order, without augmentation.

    `progress`, where given, is called with the number of images of each finished batch.
    """
    scores, labels = [], []
    for batch in evaluation_batches(split, batch_size):
        scores.append(np.asarray(model.predict_on_batch(batch["images"])["scores"]))
        labels.append(batch["labels"])
        if progress:
            progress(len(batch["images"]))
    return np.concatenate(scores), np.concatenate(labels)


def wrong(scores, labels):
    """True for each image whose highest scores are not exactly its classes.

    where:
      scores: `[N, O]`.
      labels: `[N]`, or `[N, k]` for k classes per image; all k must be right (Sabour et al. 2017, section 6).
    """
    labels = np.asarray(labels).reshape(len(scores), -1)
    best = np.argsort(-scores, axis=-1, kind="stable")[:, : labels.shape[1]]
    return (np.sort(best, axis=-1) != np.sort(labels, axis=-1)).any(axis=-1)


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
