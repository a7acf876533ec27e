"""What the decoder makes of poses."""

import numpy as np
from keras import ops

from capszoo.models.architecture import DecodesPoses, Reconstructs, architecture_of
from capszoo.visualize.common import BATCH, checked, montage, new_figure, show_image

TWEAKS = tuple(np.linspace(-0.25, 0.25, 11).tolist())  # added to a dimension; figure 4 of Sabour et al. 2017


def reconstructions(model, images):
    """What the model makes of each image: `[B, H, W, C]` in [0, 1]; with class capsules, of the most active one.

    `[B, N, H, W, C]`, most active first, where the model reads N labels from an image.

    where:
      images: `[B, H, W, C]`.

    Errors: `ValueError` for a model that does not reconstruct and for images of another shape than the model's.
    Source: Sabour et al. 2017, section 4.1 and figure 3.
    """
    images = checked(model, images)
    architecture_of(model, Reconstructs, "a reconstruction")
    return model.predict(images, batch_size=BATCH, verbose=0)["reconstruction"]


def perturbations(model, images, capsule=None, dimensions=None, values=TWEAKS):
    """Decoded images when one dimension of a capsule's pose is tweaked: `[B, D, V, H, W, C]` in [0, 1].

        result[b, d, v] = decode(pose[b] + values[v] * e[dimensions[d]])

    where:
      images: `[B, H, W, C]`.
      capsule: index of the capsule that is tweaked and decoded; None is each image's most active one.
      dimensions: the D indices into the pose; None is all of them.
      values: the V values that are added to the dimension.
      e[k]: the unit vector along dimension k.

    Errors: `ValueError` for a model that does not decode poses, for images of another shape than the model's, and for a
    capsule or dimension that does not exist.
    Source: Sabour et al. 2017, section 5.1 and figure 4.
    """
    images = checked(model, images)
    architecture = architecture_of(model, DecodesPoses, "a perturbation")
    outputs = model.predict(images, batch_size=BATCH, verbose=0)
    capsules, pose_dim = outputs["poses"].shape[1:]
    dimensions = range(pose_dim) if dimensions is None else dimensions
    _check_indices("dimensions", dimensions, pose_dim)
    if capsule is not None:
        _check_indices("capsule", [capsule], capsules)
    # [D, V, pose_dim] -> [D * V, pose_dim]
    tweaks = np.eye(pose_dim)[list(dimensions)][:, None] * np.asarray(values)[:, None]
    tweaks = tweaks.reshape(-1, pose_dim)
    decoded = []
    for poses, scores in zip(outputs["poses"], outputs["scores"], strict=True):
        chosen = np.argmax(scores) if capsule is None else capsule
        tweaked = np.repeat(poses[None], len(tweaks), axis=0)
        tweaked[:, chosen] += tweaks
        selection = np.zeros((len(tweaks), 1, capsules), "float32")
        selection[:, 0, chosen] = 1
        decoded.append(ops.convert_to_numpy(architecture.decode(model, tweaked, selection))[:, 0])
    decoded = np.stack(decoded)
    return decoded.reshape(len(images), len(dimensions), len(values), *decoded.shape[2:])


def draw_reconstructions(images, reconstructions):
    """A figure of two rows: the images `[B, H, W, C]` in [0, 1], and below each its reconstruction.

    With reconstructions `[B, N, H, W, C]` there are N rows of them.
    Errors: `ValueError` where the two differ in number or shape of the images.
    """
    images, decoded = np.asarray(images), np.asarray(reconstructions)
    decoded = decoded[:, None] if decoded.ndim == images.ndim else decoded
    if len(decoded) != len(images) or decoded.shape[2:] != images.shape[1:]:
        raise ValueError(
            f"each of the images {images.shape} must have a reconstruction of its shape. "
            f"Received reconstructions: {np.shape(reconstructions)}"
        )
    rows = np.concatenate([images[:, None], decoded], axis=1).swapaxes(0, 1)
    figure = new_figure(width=0.6 * len(images) + 1.8, height=0.6 * len(rows) + 0.4)
    axes = figure.subplots()
    show_image(axes, montage(rows))
    height = images.shape[1]
    names = ["image"] + ["reconstruction"] * decoded.shape[1]
    axes.set_yticks([height * (row + 0.5) for row in range(len(rows))], names)
    return figure


def draw_perturbations(perturbed, values=TWEAKS, dimensions=None):
    """A figure with one panel per image: a row for each dimension of the pose, a column for each value added.

    where:
      perturbed: `[B, D, V, H, W, C]`, what `perturbations` returns.
      values, dimensions: as they were given to `perturbations`; the labels of columns and rows.

    Errors: `ValueError` where the labels do not fit the array.
    Source: Sabour et al. 2017, figure 4.
    """
    perturbed = np.asarray(perturbed)
    images, rows, columns, height, width = perturbed.shape[:5]
    dimensions = range(rows) if dimensions is None else dimensions
    if (len(dimensions), len(values)) != (rows, columns):
        raise ValueError(
            f"expected {rows} dimensions and {columns} values. Received: {len(dimensions)} and {len(values)}"
        )
    figure = new_figure(width=images * (0.4 * columns + 0.5), height=0.4 * rows + 0.6)
    for axes, grid in zip(figure.subplots(1, images, squeeze=False)[0], perturbed, strict=True):
        show_image(axes, montage(grid))
        axes.set_yticks([height * (row + 0.5) for row in range(rows)], list(dimensions))
        ends = sorted({0, columns // 2, columns - 1})
        axes.set_xticks([width * (column + 0.5) for column in ends], [f"{values[end]:+.2f}" for end in ends])
        axes.set(xlabel="added to the dimension", ylabel="dimension of the pose")
    return figure


def _check_indices(name, indices, count):
    if not all(0 <= index < count for index in indices):
        raise ValueError(f"{name} must be from 0 to {count - 1}. Received: {list(indices)}")
