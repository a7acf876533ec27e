"""What a generative model of parts sees in images and what it makes up: parents of patches, and samples."""

import numpy as np

from capszoo.visualize.common import checked, montage, named_layer, new_figure, show_image


def draw_parse(model, images, count=8):
    """A figure of the first `count` images: image, reconstruction, and the most probable parent of each patch.

    The colour of a patch is its parent's, and it is the paler the less probable that parent is.

    where:
      model: an inference model of `capszoo.models.AttentionCapsNet`.
      images: `[B, H, W, C]`.

    Errors: `ValueError` for another model and for images of another shape than the model's.
    """
    images = checked(model, images)[:count]
    patches = named_layer(model, "top_down", "a generative model of parts") and model.get_layer("parts")
    outputs = model.predict(images, verbose=0)
    colours = parent_colours(outputs["coefficients"].shape[-1])
    parse = outputs["coefficients"]
    shares = parse.max(axis=-1, keepdims=True)
    # [B, m] -> [B, rows, columns, 3], towards white where no parent is probable
    painted = shares * colours[parse.argmax(axis=-1)] + 1 - shares
    painted = painted.reshape(len(images), *patches.grid[:2], 3)
    figure = new_figure(width=0.9 * len(images) + 1, height=3.0)
    grid = figure.subplots(3, len(images), squeeze=False)
    for column, pictures in enumerate(zip(images, outputs["reconstruction"], painted, strict=True)):
        for axes, picture in zip(grid[:, column], pictures, strict=True):
            show_image(axes, picture)
    for axes, name in zip(grid[:, 0], ("image", "reconstruction", "parents"), strict=True):
        axes.set_ylabel(name, fontsize="x-small")
    return figure


def draw_samples(model, rows=6, columns=10, seed=0):
    """A figure of images that `model`, an `AttentionCapsNet`'s, generates: poses, then parents, then parts.

    Errors: `ValueError` for another model.
    """
    from capszoo.models.predictive_coding.attention import sample_images

    named_layer(model, "top_down", "a generative model of parts")
    images, _ = sample_images(model, rows * columns, seed)
    figure = new_figure(width=0.6 * columns, height=0.6 * rows)
    show_image(figure.subplots(), montage(images.reshape(rows, columns, *images.shape[1:])))
    return figure


def parent_colours(count):
    """A colour `[count, 3]` in [0, 1] for each object."""
    import matplotlib

    return matplotlib.colormaps["tab10" if count <= 10 else "hsv"](np.arange(count) / max(count, 10))[:, :3]
