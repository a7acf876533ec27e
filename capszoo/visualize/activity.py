"""Where in the image capsules are active."""

import keras
import numpy as np
from keras import ops

from capszoo.layers.routes import routed_layers
from capszoo.visualize.common import checked, in_batches, new_figure


def activation_maps(model, images):
    """Activations of all capsules on a grid that are routed, by the layer that makes them: `[B, H', W', types]` each.

    where:
      images: `[B, H, W, C]`.

    Activations are in [0, 1]. Of capsules without any it is the length of the pose (Sabour et al. 2017), in [0, 1)
    where that was squashed; of a matrix the root of the sum of its squared entries, without an upper end.
    Errors: `ValueError` for a model without such capsules and for images of another shape than the model's.
    """
    images = checked(model, images)
    outputs = capsules_on_grids(model)
    if not outputs:
        raise ValueError(f"expected a model with capsules on a grid. Received: {model.name!r} without any")
    batches = [
        {name: activations_of(capsules) for name, capsules in batch.items()}
        for batch in in_batches(model, outputs, images)
    ]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in outputs}


def draw_activation_maps(maps):
    """A figure with a row for each image and a column for each type.

    where:
      maps: `[B, H', W', types]`, what `activation_maps` gives for one layer.

    All panels share their colours, from the smallest activation (black) to the largest (white).
    """
    maps = np.asarray(maps)
    rows, types = len(maps), maps.shape[-1]
    figure = new_figure(width=0.75 * types + 1.5, height=0.75 * rows + 0.8)
    grid = figure.subplots(rows, types, squeeze=False)
    for panels, image in zip(grid, maps, strict=True):
        for axes, activations in zip(panels, np.moveaxis(image, -1, 0), strict=True):
            picture = axes.imshow(activations, vmin=maps.min(), vmax=maps.max(), cmap="gray")
            axes.set(xticks=[], yticks=[])
    for number, axes in enumerate(grid[0]):
        axes.set_title(f"type {number}", fontsize="small")
    for number, axes in enumerate(grid[:, 0]):
        axes.set_ylabel(f"image {number}", fontsize="small")
    figure.colorbar(picture, ax=grid, label="activation")
    return figure


def capsules_on_grids(model):
    """What layers that route take of capsules on a grid, by the name of the layer that says how active they are.

    They are poses and activations `[B, H, W, types]`, or poses `[B, H, W, types, D]` or `[B, H, W, types, P, P]`.
    """
    grids = {}
    for layer in routed_layers(model):
        tensors = keras.tree.flatten(layer.input)
        if len(tensors[0].shape) in (5, 6):
            grids[tensors[-1]._keras_history.operation.name] = layer.input
    return grids


def activations_of(capsules):
    """Activations `[..., types]` of capsules as a layer takes them: their own, or the lengths of their poses."""
    if isinstance(capsules, list | tuple):
        return capsules[1]
    return ops.sqrt(ops.sum(ops.square(capsules), axis=tuple(range(4, len(capsules.shape)))))
