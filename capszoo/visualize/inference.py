"""Capsules side by side before and after iterative inference."""

import numpy as np

from capszoo.visualize.common import checked_names, new_figure, show_image


def draw_inferred_poses(images, poses, labels=None, class_names=None):
    """A figure with a row of panels for each image and condition: every capsule's pose, its length above it.

    where:
      images: `[B, H, W, C]` in [0, 1].
      poses: by condition `[B, O, D]`, as `capszoo.protocols.infer_activities` gives them for one layer.
      labels: `[B]`; the labelled capsules get a red frame.

    All panels share their colours, symmetric about zero.
    Errors: `ValueError` for poses of another number of images.
    Source: Kiefer et al. 2022, figure 1, rows B to E.
    """
    poses = {condition: np.asarray(values) for condition, values in poses.items()}
    for condition, values in poses.items():
        if len(values) != len(images):
            raise ValueError(f"poses must be of {len(images)} images. Received {len(values)}: {condition}")
    capsules = next(iter(poses.values())).shape[1]
    names = checked_names(class_names, capsules)
    rows = len(images) * len(poses)
    figure = new_figure(width=0.55 * (capsules + 3), height=0.85 * rows + 0.4)
    grid = figure.subplots(rows, capsules + 1, squeeze=False)
    limit = max(np.abs(values).max() for values in poses.values()) or 1.0
    panels = iter(grid)
    for number, image in enumerate(images):
        for condition, values in poses.items():
            first, *others = next(panels)
            show_image(first, image)
            first.set_ylabel(condition.replace(" with", "\nwith"), fontsize="x-small", rotation=0, ha="right")
            for capsule, axes in enumerate(others):
                labelled = labels is not None and labels[number] == capsule
                _show_pose(axes, values[number, capsule], limit, labelled)
    for axes, name in zip(grid[-1][1:], names, strict=True):
        axes.set_xlabel(name, fontsize="x-small")
    return figure


def _show_pose(axes, pose, limit, framed):
    """A pose as a square of its entries, its length above it."""
    side = int(np.ceil(np.sqrt(len(pose))))
    square = np.full(side * side, np.nan)
    square[: len(pose)] = pose
    axes.imshow(square.reshape(side, side), vmin=-limit, vmax=limit, cmap="RdBu")
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"{np.linalg.norm(pose):.2f}", fontsize="x-small", pad=1)
    for spine in axes.spines.values():
        spine.set(edgecolor="red" if framed else "grey", linewidth=2 if framed else 0.5)
