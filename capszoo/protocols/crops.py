"""Scores averaged over several crops of each image."""

import numpy as np

from capszoo.data.pipeline import evaluation_batches
from capszoo.progress import QUIET

# Where the 13 crops of the authors' code are, in pixels down and right of the centre: the centre itself and the four
# diagonal neighbours at one, two and three pixels.
CROPS = ((0, 0), *((n * down, n * right) for n in (1, 2, 3) for down in (-1, 1) for right in (-1, 1)))


def predict_crops(model, split, crops=None, batch_size=250, progress=QUIET):
    """Scores `[N, O]` and labels `[N]` of every image of `split`, as `predict_split`, from several crops of each.

        score_k = mean_c ( a_kc / sum_j a_jc )

    where:
      a_kc: score of class k for crop c.
      crops: `(down, right)` of each crop, in pixels from the centre; None are those of `CROPS` that stay in the image.

    Errors: `ConfigError` for a split whose images are not cropped; `ValueError` for a crop that leaves the image.
    Source: Hinton et al. 2018, section 5 ("average the class activations over multiple crops", 1.4 %); number and
    places of the crops and the division by each crop's sum are the authors' code's.
    Differs from the authors' code: TensorFlow 1's `extract_glimpse` halves and truncates their offsets, so that only
    10 of the 13 crops differ, at -2, -1, 0 and 1 pixels. Here the offsets are what they say.
    """
    if crops is None:
        before, after = split.margins
        crops = [crop for crop in CROPS if -before <= min(crop) and max(crop) <= after]
    views = [evaluation_batches(split.shifted(*crop), batch_size) for crop in crops]
    scores, labels = [], []
    for batches in zip(*views, strict=True):
        parts = [_shares(np.asarray(model.predict_on_batch(batch["images"])["scores"])) for batch in batches]
        scores.append(np.mean(parts, axis=0))
        labels.append(batches[0]["labels"])
        progress.advance(len(labels[-1]))
    return np.concatenate(scores), np.concatenate(labels)


def _shares(scores):
    # Scores that are all zero say nothing, and stay zero.
    return scores / np.maximum(scores.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
