"""What a generative model of parts sees in images and what it makes up: parents of patches, and samples."""

import numpy as np

from capszoo.models.architecture import BoundsLikelihood, ParsesParts, architecture_of
from capszoo.visualize.common import checked, montage, new_figure, show_image


def draw_parse(model, images, count=8):
    """A figure of the first `count` images: image, reconstruction, and the most probable parent of each patch.

    The colour of a patch is its parent's, and it is the paler the less probable that parent is.

    where:
      model: an inference model that parses parts, such as that of `capszoo.models.AttentionCapsNet`.
      images: `[B, H, W, C]`.

    Errors: `ValueError` for another model and for images of another shape than the model's.
    """
    images = checked(model, images)[:count]
    grid_of_parts = architecture_of(model, ParsesParts, "a parse").part_grid(model)
    outputs = model.predict(images, verbose=0)
    colours = parent_colours(outputs["coefficients"].shape[-1])
    parse = outputs["coefficients"]
    shares = parse.max(axis=-1, keepdims=True)
    # [B, m] -> [B, rows, columns, 3], towards white where no parent is probable
    painted = shares * colours[parse.argmax(axis=-1)] + 1 - shares
    painted = painted.reshape(len(images), *grid_of_parts, 3)
    figure = new_figure(width=0.9 * len(images) + 1, height=3.0)
    grid = figure.subplots(3, len(images), squeeze=False)
    for column, pictures in enumerate(zip(images, outputs["reconstruction"], painted, strict=True)):
        for axes, picture in zip(grid[:, column], pictures, strict=True):
            show_image(axes, picture)
    for axes, name in zip(grid[:, 0], ("image", "reconstruction", "parents"), strict=True):
        axes.set_ylabel(name, fontsize="x-small")
    return figure


def draw_samples(model, rows=6, columns=10, seed=0):
    """A figure of images that `model` generates, without noise.

    Errors: `ValueError` for another model.
    """
    architecture = architecture_of(model, BoundsLikelihood, "a drawing of samples")
    images = architecture.sample(model, rows * columns, seed)
    figure = new_figure(width=0.6 * columns, height=0.6 * rows)
    show_image(figure.subplots(), montage(images.reshape(rows, columns, *images.shape[1:])))
    return figure


def parent_colours(count):
    """A colour `[count, 3]` in [0, 1] for each object."""
    import matplotlib

    return matplotlib.colormaps["tab10" if count <= 10 else "hsv"](np.arange(count) / max(count, 10))[:, :3]
