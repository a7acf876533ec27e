"""How poses follow the viewpoint."""

import math

import numpy as np

from capszoo.data.pipeline import evaluation_batches
from capszoo.visualize.common import BATCH, checked, new_figure


def views(split, along, **fixed):
    """The images of a split in which one factor varies and the others have the given values.

        codes, images = views(split, "azimuth", labels=4, instance=0, elevation=2, lighting=0)

    where:
      split: a `capszoo.data.Split` whose batches have factors beside `images` and `labels`.
      along: name of the factor that varies.
      fixed: value of every other factor that matters; `labels` is the class.

    Returns the values of the factor, ascending `[V]`, and the images `[V, H, W, C]`, as the model takes them.
    Errors: `ValueError` for a factor that the split does not have, for values that no image has, and where several
    images share a value of `along`, so that more must be fixed.
    """
    found = []
    for batch in evaluation_batches(split, 250):
        factors = {name for name, array in batch.items() if array.ndim == 1}
        unknown = sorted({along, *fixed} - factors)
        if unknown:
            raise ValueError(f"factors must be of {sorted(factors)}. Received: {unknown}")
        keep = np.ones(len(batch[along]), bool)
        for name, value in fixed.items():
            keep &= batch[name] == value
        found.append((batch[along][keep], batch["images"][keep]))
    values, images = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if not len(values):
        raise ValueError(f"expected values of factors that some image has. Received: {fixed}")
    if len(np.unique(values)) < len(values):
        others = sorted(factors - {along, *fixed})
        raise ValueError(f"one image per {along} is needed: fix more of {others}. Received: {fixed}")
    order = np.argsort(values)
    return values[order], images[order]


def winning_poses(model, images):
    """The most active class of each image, `[B]`, and that capsule's pose, `[B, P, P]` or `[B, D]`.

    where:
      images: `[B, H, W, C]`.

    Errors: `ValueError` for a model without scores or poses, and for images of another shape than the model's.
    """
    if not (isinstance(model.output, dict) and {"scores", "poses"} <= model.output.keys()):
        raise ValueError(f"a model with the outputs scores and poses is needed. Received: {model.output}")
    outputs = model.predict(checked(model, images), batch_size=BATCH, verbose=0)
    classes = np.argmax(outputs["scores"], axis=-1)
    return classes, outputs["poses"][np.arange(len(classes)), classes]


def draw_poses(values, poses, classes, xlabel):
    """A figure with a panel for each entry of the pose, drawn against a factor.

    where:
      values: `[V]`, of the factor, for example 20 degrees times the codes that `views` returns.
      poses: `[V, P, P]` or `[V, D]`; classes: `[V]`, both as `winning_poses` returns them.
      xlabel: what `values` are.

    The class that wins most often is drawn as a line; where another one wins, whose pose need not be comparable, the
    line is broken and a cross stands. All panels share their scale.
    Errors: `ValueError` for arrays of different numbers of views.
    """
    values, poses, classes = np.asarray(values), np.asarray(poses), np.asarray(classes)
    if not len(values) == len(poses) == len(classes):
        raise ValueError(
            "values, poses and classes must be of the same views. "
            f"Received: {len(values)}, {len(poses)}, {len(classes)} views"
        )
    usual = classes == np.bincount(classes).argmax()
    entries = poses.reshape(len(poses), -1).T
    columns = poses.shape[2] if poses.ndim == 3 else math.ceil(math.sqrt(len(entries)))
    rows = math.ceil(len(entries) / columns)
    figure = new_figure(width=1.8 * columns, height=1.3 * rows + 0.5)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.ravel()[len(entries) :]:
        axes.remove()
    for axes, entry in zip(grid.ravel(), entries, strict=False):
        axes.plot(values, np.where(usual, entry, np.nan), marker=".")
        axes.plot(values[~usual], entry[~usual], "x")
    figure.supxlabel(xlabel)
    figure.supylabel("entry of the pose")
    return figure
