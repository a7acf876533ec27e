"""What a model says of pictures, drawn beside them."""

import numpy as np

from capszoo.visualize.common import checked_names, new_figure, show_image


def draw_predictions(images, scores, class_names, poses=None, reconstructions=None):
    """A figure with one row per image: the image, its reconstruction, scores as bars and poses as colours.

    where:
      images: `[B, H, W, C]` in [0, 1].
      scores: `[B, classes]` in [0, 1]; the highest is marked.
      class_names: one per class; None numbers the classes.
      poses: `[B, classes, D]` or `[B, classes, P, P]`, or None. Red above zero, blue below, white at zero.
      reconstructions: `[B, H, W, C]` in [0, 1], or `[B, N, H, W, C]`, or None.

    Errors: `ValueError` for another number of names than classes and where the arrays differ in number of
    images.
    """
    scores = np.asarray(scores)
    names = checked_names(class_names, scores.shape[-1])
    columns = {
        "image": (images, show_image),
        "reconstruction": (reconstructions, show_image),
        "scores": (scores, lambda axes, row: _show_scores(axes, row, names)),
        "poses": (poses, lambda axes, row: _show_poses(axes, row, names, np.abs(poses).max())),
    }
    columns = {title: column for title, column in columns.items() if column[0] is not None}
    lengths = {title: len(array) for title, (array, _) in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"expected arrays of the same number of images. Received: {lengths}")
    figure = new_figure(
        width=2.6 * len(columns), height=max(1.8, 0.16 * len(names) + 0.7) * len(scores) + 0.3
    )
    grid = figure.subplots(len(scores), len(columns), squeeze=False)
    for panels, (title, (array, show)) in zip(grid.T, columns.items(), strict=True):
        panels[0].set_title(title)
        for axes, row in zip(panels, array, strict=True):
            show(axes, np.asarray(row))
    return figure


def _show_scores(axes, scores, names):
    bars = axes.barh(range(len(names)), scores, color="silver")
    bars[int(np.argmax(scores))].set_color("tab:orange")
    axes.set(xlim=(0, 1), xlabel="activation")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()


def _show_poses(axes, poses, names, limit):
    axes.imshow(poses.reshape(len(names), -1), vmin=-limit, vmax=limit, cmap="RdBu_r", aspect="auto")
    axes.set(xticks=[], xlabel="entry of the pose")
    axes.set_yticks(range(len(names)), names)
