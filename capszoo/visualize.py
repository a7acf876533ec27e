"""What capsules have learnt, as arrays to look into; and thin drawings of those arrays.

Images go in as the model takes them. The drawings are `matplotlib.figure.Figure`s that belong to nobody: no
pyplot, no window, no global state; `figure.savefig(path)` writes one.
"""

import keras
import numpy as np
from keras import ops

TWEAKS = tuple(np.linspace(-0.25, 0.25, 11).tolist())  # added to a dimension; figure 4 of Sabour et al. 2017
_BATCH = 32  # images at a time: votes are large


def reconstructions(model, images):
    """What the decoder makes of the most active capsule of each image: `[B, H, W, C]` in [0, 1].

    `[B, N, H, W, C]`, most active first, where the model reads N labels from an image.

    where:
      images: `[B, H, W, C]`.

    Errors: `ValueError` for a model without decoder and for images of another shape than the model's.
    Source: Sabour et al. 2017, section 4.1 and figure 3.
    """
    images = _checked(model, images)
    _layer(model, "decoder", "a model with a decoder")
    return model.predict(images, batch_size=_BATCH, verbose=0)["reconstruction"]


def perturbations(model, images, capsule=None, dimensions=None, values=TWEAKS):
    """Decoded images when one dimension of a capsule's pose is tweaked: `[B, D, V, H, W, C]` in [0, 1].

        result[b, d, v] = decode(pose[b] + values[v] * e[dimensions[d]])

    where:
      images: `[B, H, W, C]`.
      capsule: index of the capsule that is tweaked and decoded; None is each image's most active one.
      dimensions: the D indices into the pose; None is all of them.
      values: the V values that are added to the dimension.
      e[k]: the unit vector along dimension k.

    Errors: `ValueError` for a model without decoder, for images of another shape than the model's, and for a
    capsule or dimension that does not exist.
    Source: Sabour et al. 2017, section 5.1 and figure 4.
    """
    images = _checked(model, images)
    mask, decoder = (_layer(model, name, "a model with a decoder") for name in ("mask", "decoder"))
    outputs = model.predict(images, batch_size=_BATCH, verbose=0)
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
        decoded.append(ops.convert_to_numpy(decoder(mask(tweaked, selection)))[:, 0])
    decoded = np.stack(decoded)
    return decoded.reshape(len(images), len(dimensions), len(values), *decoded.shape[2:])


def coefficients(model, images, num_iterations=None):
    """Coefficients of the routing to the class capsules, in every iteration: `[T, B, I, O]`.

    where:
      images: `[B, H, W, C]`.
      num_iterations: T; None is the model's own count.
      I: children, flattened in the order of the layer below: `[H', W', types]` -> `I = H' * W' * types`.
      O: class capsules.

    About 140 KB for each image of a 28x28 model with three iterations.
    Errors: `ValueError` for a model without a layer `class_capsules`, for images of another shape than the
    model's, and for `num_iterations` below one.
    """
    images = _checked(model, images)
    layer = _layer(model, "class_capsules", "a model with class capsules")
    below = keras.Model(model.input, layer.input)
    batches = []
    for start in range(0, len(images), _BATCH):
        children = below(images[start : start + _BATCH])
        history = layer(children, num_iterations=num_iterations, return_history=True)[-1]
        batches.append(ops.convert_to_numpy(history))
    return np.concatenate(batches, axis=1)


def coefficient_entropy(coefficients):
    """How undecided each child is: the entropy of its coefficients over its parents, `[..., I]`, in nats.

        p_ij = c_ij / sum_k c_ik
        entropy_i = -sum_j p_ij ln p_ij

    where:
      c_ij: `coefficients[..., I, O]`, not negative.
      entropy_i: from 0 (all to one parent) to ln O (the same to every parent).

    Dividing by the sum changes nothing where a child's coefficients sum to one; under leaky routing it leaves
    out what the child sends nowhere. A child that sends nothing has entropy 0.
    """
    coefficients = np.asarray(coefficients, dtype="float64")
    total = coefficients.sum(axis=-1, keepdims=True)
    shares = np.divide(coefficients, total, out=np.zeros_like(coefficients), where=total > 0)
    # 0 ln 0 = 0
    return -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=-1)


def coefficients_by_type(coefficients, types):
    """Mean coefficient from each type of child to each parent, over images and positions: `[T, types, O]`.

    where:
      coefficients: `[T, B, I, O]` with the types as the fastest axis of I, as `coefficients` returns them.

    Errors: `ValueError` where I is not a multiple of `types`.
    """
    iterations, images, children, parents = coefficients.shape
    if types < 1 or children % types:
        raise ValueError(f"the {children} children must be a multiple of the types. Received types: {types}")
    # [T, B, I, O] -> [T, B, positions, types, O]
    return coefficients.reshape(iterations, images, -1, types, parents).mean(axis=(1, 2))


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
    figure = _figure(width=0.6 * len(images) + 1.2, height=0.6 * len(rows) + 0.4)
    axes = figure.subplots()
    _show_image(axes, _montage(rows))
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
    figure = _figure(width=images * (0.4 * columns + 0.5), height=0.4 * rows + 0.6)
    for axes, grid in zip(figure.subplots(1, images, squeeze=False)[0], perturbed, strict=True):
        _show_image(axes, _montage(grid))
        axes.set_yticks([height * (row + 0.5) for row in range(rows)], list(dimensions))
        ends = sorted({0, columns // 2, columns - 1})
        axes.set_xticks([width * (column + 0.5) for column in ends], [f"{values[end]:+.2f}" for end in ends])
        axes.set(xlabel="added", ylabel="dimension")
    return figure


def draw_coefficients(coefficients, types, class_names=None):
    """A figure with one heat map per iteration: mean coefficient from each type of child to each class.

    where:
      coefficients: `[T, B, I, O]`, what the function `coefficients` returns. Images of one class show most:
        over all classes the mean is nearly uniform.
      types: number of types of children, 32 in the paper's network.
      class_names: the O names; None numbers the classes.

    All panels share their colours, from zero to the largest mean.
    Errors: `ValueError` where I is not a multiple of `types`, or for another number of names than classes.
    """
    means = coefficients_by_type(np.asarray(coefficients), types)
    names = _names(class_names, means.shape[-1])
    figure = _figure(width=0.26 * len(means) * len(names) + 1.5, height=0.13 * types + 1.5)
    panels = figure.subplots(1, len(means), sharey=True, squeeze=False)[0]
    for iteration, (axes, mean) in enumerate(zip(panels, means, strict=True), start=1):
        picture = axes.imshow(mean, vmin=0, vmax=means.max(), aspect="auto", cmap="viridis")
        axes.set(title=f"iteration {iteration}", xlabel="class")
        axes.set_xticks(range(len(names)), names, rotation=90)
    panels[0].set_ylabel("type of child")
    figure.colorbar(picture, ax=list(panels), label="mean coefficient")
    return figure


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
    names = _names(class_names, scores.shape[-1])
    columns = {
        "image": (images, _show_image),
        "reconstruction": (reconstructions, _show_image),
        "scores": (scores, lambda axes, row: _show_scores(axes, row, names)),
        "poses": (poses, lambda axes, row: _show_poses(axes, row, names, np.abs(poses).max())),
    }
    columns = {title: column for title, column in columns.items() if column[0] is not None}
    lengths = {title: len(array) for title, (array, _) in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"expected arrays of the same number of images. Received: {lengths}")
    figure = _figure(width=2.6 * len(columns), height=max(1.6, 0.16 * len(names) + 0.4) * len(scores) + 0.3)
    grid = figure.subplots(len(scores), len(columns), squeeze=False)
    for panels, (title, (array, show)) in zip(grid.T, columns.items(), strict=True):
        panels[0].set_title(title)
        for axes, row in zip(panels, array, strict=True):
            show(axes, np.asarray(row))
    return figure


def _checked(model, images):
    images = np.asarray(images, dtype="float32")
    expected = tuple(model.input_shape[1:])
    if images.shape[1:] != expected or not len(images):
        raise ValueError(
            f"images must be [B, {', '.join(map(str, expected))}]. Received shape: {images.shape}"
        )
    return images


def _layer(model, name, wanted):
    if name not in {layer.name for layer in model.layers}:
        raise ValueError(f"expected {wanted} (a layer named {name!r}). Received: {model.name!r} without one")
    return model.get_layer(name)


def _check_indices(name, indices, count):
    if not all(0 <= index < count for index in indices):
        raise ValueError(f"{name} must be from 0 to {count - 1}. Received: {list(indices)}")


def _figure(width, height):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _names(class_names, count):
    names = [str(i) for i in range(count)] if class_names is None else list(class_names)
    if len(names) != count:
        raise ValueError(f"expected {count} class names. Received {len(names)}: {names}")
    return names


def _montage(grid):
    """Images `[rows, columns, H, W, C]` side by side: one image `[rows * H, columns * W, C]`."""
    rows, columns, height, width, channels = grid.shape
    # [rows, columns, H, W, C] -> [rows, H, columns, W, C]
    return grid.swapaxes(1, 2).reshape(rows * height, columns * width, channels)


def _show_image(axes, image):
    """Three channels as colours, any other number side by side in grey (two are a stereo pair).

    Of `[N, H, W, C]` all N are shown in a row.
    """
    image = np.clip(image if image.ndim == 3 else _montage(image[None]), 0, 1)
    if image.shape[-1] != 3:
        image = np.concatenate(list(np.moveaxis(image, -1, 0)), axis=1)
    axes.imshow(image, vmin=0, vmax=1, cmap="gray")
    axes.set(xticks=[], yticks=[])


def _show_scores(axes, scores, names):
    bars = axes.barh(range(len(names)), scores, color="silver")
    bars[int(np.argmax(scores))].set_color("tab:orange")
    axes.set(xlim=(0, 1))
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()


def _show_poses(axes, poses, names, limit):
    axes.imshow(poses.reshape(len(names), -1), vmin=-limit, vmax=limit, cmap="RdBu_r", aspect="auto")
    axes.set(xticks=[], xlabel="pose")
    axes.set_yticks(range(len(names)), names)
