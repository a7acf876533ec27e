"""Coefficients and votes drawn over the image, where the children that send them look."""

import math

import keras
import numpy as np

from capszoo.visualize.activity import activations_of
from capszoo.visualize.common import checked, checked_names, in_batches, new_figure, routed_layer
from capszoo.visualize.routing import coefficients
from capszoo.visualize.votes import vote_distances


def child_centres(model, layer=None):
    """Where the children of a layer look: the rows and the columns of their receptive fields' centres, in pixels.

    where:
      layer: name of a layer that routes and whose children lie on a grid, by default the last one.

    Returns two arrays, `[H']` and `[W']`.
    Errors: `ValueError` for a model without a layer, or without one of that name, that routes capsules of a grid, and
    for children that no stack of convolutions and pools has made.
    """
    layer = routed_layer(model, layer)
    children = keras.tree.flatten(layer.input)[0]
    if len(children.shape) not in (5, 6):
        raise ValueError(f"a layer with children on a grid is needed. Received: {layer.name!r}")
    grid, windows = children.shape[1:3], []
    while children is not model.input:
        below = children._keras_history.operation
        if isinstance(below, keras.Model):
            raise ValueError(
                f"what the children of {layer.name!r} see is not known: {below.name!r} is a model"
            )
        config = below.get_config()
        if "kernel_size" in config or "pool_size" in config:
            windows.append((config.get("kernel_size", config.get("pool_size")), config))
        children = keras.tree.flatten(below.input)[0]
    centres = tuple(
        _centres(model.input_shape[1 + axis], [_window(size, config, axis) for size, config in windows[::-1]])
        for axis in (0, 1)
    )
    if tuple(map(len, centres)) != tuple(grid):
        raise ValueError(
            f"what the children of {layer.name!r} see is not known: convolutions and pools below make a grid of "
            f"{len(centres[0])} x {len(centres[1])}. Received: {grid[0]} x {grid[1]}"
        )
    return centres


def coefficient_maps(model, images, layer=None):
    """How much of what is active at each position goes to each parent in the last iteration: `[B, H', W', O]`.

        result[b, h, w, j] = sum over types t of a_bhwt * c_bhwtj

    where:
      images: `[B, H, W, C]`.
      layer: name of a layer that routes a whole grid to each parent, such as class capsules; by default the last one.
      a: activations of the children in [0, 1], or the lengths of their poses; c: coefficients.

    Errors: `ValueError` for other layers, and as those of `capszoo.visualize.coefficients`.
    """
    images, layer = checked(model, images), routed_layer(model, layer)
    shares = coefficients(model, images, layer=layer.name)[-1]
    grid = _grid(layer, shares)
    activations = np.concatenate([activations_of(part) for part in in_batches(model, layer.input, images)])
    # [B, I, O] -> [B, H', W', types, O]
    shares = shares.reshape(len(images), *grid, shares.shape[-1])
    return (activations[..., None] * shares).sum(axis=-2)


def vote_distance_maps(model, images, layer=None):
    """How far the votes from each position lie from each parent in the last iteration: `[B, H', W', O]`.

        result[b, h, w, j] = sum_t c_bhwtj * distance_bhwtj / sum_t c_bhwtj

    where:
      distance, c: as `capszoo.visualize.vote_distances` gives them; t are the types of children at a position.

    Errors: as those of `coefficient_maps`.
    """
    layer = routed_layer(model, layer)
    distances, shares = (part[-1] for part in vote_distances(model, images, layer.name))
    grid = _grid(layer, shares)
    # [B, I, O] -> [B, H', W', types, O]
    distances, shares = (part.reshape(len(part), *grid, part.shape[-1]) for part in (distances, shares))
    return (shares * distances).sum(axis=-2) / np.maximum(shares.sum(axis=-2), np.finfo("float32").tiny)


def draw_over_image(image, maps, centres, label, class_names=None):
    """A figure with the image, and a panel for each parent: the image in grey, and a map over it in colours.

    where:
      image: `[H, W, C]`, as the model takes it; of a stereo pair the left view is shown.
      maps: `[H', W', O]`, what `coefficient_maps` or `vote_distance_maps` gives for it.
      centres: what `child_centres` returns. Each position is a square about the centre of its receptive field, as wide
        as neighbours are apart; what it sees is larger.
      label: what the colours are. All panels share them, from zero (dark) to the largest value (light).
      class_names: the O names; None numbers the parents.

    Errors: `ValueError` for maps of another grid than that of the centres, and for another number of names.
    """
    maps, (rows, columns) = np.asarray(maps), centres
    if maps.shape[:2] != (len(rows), len(columns)):
        raise ValueError(
            f"maps must be of {len(rows)} rows and {len(columns)} columns. Received: {maps.shape}"
        )
    names = checked_names(class_names, maps.shape[-1])
    width = min(6, len(names) + 1)
    height = -(-(len(names) + 1) // width)
    figure = new_figure(width=1.6 * width + 1, height=1.75 * height + 0.4)
    panels = list(figure.subplots(height, width, squeeze=False).ravel())
    for axes in panels[len(names) + 1 :]:
        axes.remove()
    grey = np.asarray(image)[..., 0] if image.shape[-1] == 2 else np.asarray(image).mean(axis=-1)
    extent = (*_ends(columns, grey.shape[1]), *_ends(rows, grey.shape[0])[::-1])
    for axes, name in zip(panels, ["image", *names], strict=False):
        # A standardised image has no white of its own.
        axes.imshow(grey, cmap="gray", vmin=grey.min(), vmax=grey.max())
        axes.set(xticks=[], yticks=[])
        axes.set_title(name, fontsize="small")
    for axes, values in zip(panels[1:], np.moveaxis(maps, -1, 0), strict=False):
        picture = axes.imshow(values, vmin=0, vmax=maps.max(), cmap="inferno", alpha=0.6, extent=extent)
        axes.set(xlim=(-0.5, grey.shape[1] - 0.5), ylim=(grey.shape[0] - 0.5, -0.5))
    figure.colorbar(picture, ax=panels[: len(names) + 1], label=label)
    return figure


def sees_whole_grid(layer, coefficients):
    """Whether the children in coefficients `[B, I, O]` of a layer are all capsules of the grid that the layer takes."""
    shape = keras.tree.flatten(layer.input)[0].shape
    on_grid = coefficients.ndim == 3 and len(shape) in (5, 6)
    return on_grid and math.prod(shape[1:4]) == coefficients.shape[1]


def _grid(layer, coefficients):
    """`(H', W', types)` of the children of a layer. Errors: `ValueError` unless each parent sees all of them."""
    if not sees_whole_grid(layer, coefficients):
        raise ValueError(
            f"a layer whose parents each see a whole grid of children is needed. Received: {layer.name!r}"
        )
    return tuple(keras.tree.flatten(layer.input)[0].shape[1:4])


def _window(size, config, axis):
    """`(size, stride, padded)` of a layer's window along an axis."""
    values = size, config["strides"], config.get("dilation_rate", 1)
    size, stride, dilation = (value if isinstance(value, int) else value[axis] for value in values)
    return (size - 1) * dilation + 1, stride, config.get("padding") == "same"


def _centres(side, windows):
    """Centres in pixels along an axis of `side` pixels, below the windows of a stack of layers."""
    first, spacing, positions = 0.0, 1, side
    for size, stride, padded in windows:
        count = -(-positions // stride) if padded else (positions - size) // stride + 1
        before = max((count - 1) * stride + size - positions, 0) // 2 if padded else 0
        first += spacing * ((size - 1) / 2 - before)
        spacing, positions = spacing * stride, count
    return first + spacing * np.arange(positions)


def _ends(centres, side):
    """Where the first square begins and the last one ends; a single one covers the whole side."""
    if len(centres) == 1:
        return -0.5, side - 0.5
    half = (centres[1] - centres[0]) / 2
    return centres[0] - half, centres[-1] + half
