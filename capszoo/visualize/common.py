"""What the drawings and the functions behind them share."""

import keras
import numpy as np

from capszoo.data.checking import to_float
from capszoo.layers.routes import Routes, routed_layers
from capszoo.models.fitting import check_images
from capszoo.models.network import ImageModel

BATCH = 32  # images at a time: votes are large


def checked(model, images):
    """`images` as the network of `model` takes them, float32; uint8 are grey levels.

    Errors: `ValueError` unless they are of the shape that `model` takes, and for values that it refuses.
    """
    images = np.asarray(images)
    expected = tuple(model.input_shape[1:])
    if images.shape[1:] != expected or not len(images):
        raise ValueError(
            f"images must be [B, {', '.join(map(str, expected))}]. Received shape: {images.shape}"
        )
    if isinstance(model, ImageModel):
        check_images(model, images)
    return to_float(images)


def routed_layer(model, name=None):
    """The layer of that name, by default the last one that routes. Errors: `ValueError` unless there is one."""
    if name is None:
        layers = routed_layers(model)
        if not layers:
            raise ValueError(f"a model with capsules that are routed is needed. Received: {model.name!r}")
        return layers[-1]
    layer = model.get_layer(name)
    if not isinstance(layer, Routes):
        raise ValueError(f"a layer that routes is needed. Received: {name!r}, a {type(layer).__name__}")
    return layer


def in_batches(model, outputs, images, size=BATCH):
    """For each batch of images, the `outputs` of `model`'s graph, tensors in any structure, as arrays."""
    part = keras.Model(model.input, outputs)
    for start in range(0, len(images), size):
        yield keras.tree.map_structure(keras.ops.convert_to_numpy, part(images[start : start + size]))


def checked_names(class_names, count):
    """`class_names` as a list, by default numbers. Errors: `ValueError` unless there are `count`."""
    names = [str(i) for i in range(count)] if class_names is None else list(class_names)
    if len(names) != count:
        raise ValueError(f"expected {count} class names. Received {len(names)}: {names}")
    # Between two of them Matplotlib would set a formula.
    return [str(name).replace("$", r"\$") for name in names]


def new_figure(width, height):
    """An empty figure of that many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def montage(grid):
    """Images `[rows, columns, H, W, C]` side by side: one image `[rows * H, columns * W, C]`."""
    rows, columns, height, width, channels = grid.shape
    # [rows, columns, H, W, C] -> [rows, H, columns, W, C]
    return grid.swapaxes(1, 2).reshape(rows * height, columns * width, channels)


def show_image(axes, image):
    """Three channels as colours, any other number side by side in grey (two are a stereo pair).

    Of `[N, H, W, C]` all N are shown in a row.
    """
    image = np.clip(image if image.ndim == 3 else montage(image[None]), 0, 1)
    if image.shape[-1] != 3:
        image = np.concatenate(list(np.moveaxis(image, -1, 0)), axis=1)
    axes.imshow(image, vmin=0, vmax=1, cmap="gray")
    axes.set(xticks=[], yticks=[])
