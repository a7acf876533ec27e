"""Whether capsules specialise: who wins the routing, how often, and what each one adds to a reconstruction."""

import keras
import numpy as np
from keras import ops

from capszoo.layers.sparse import routing_support
from capszoo.models.architecture import DecodesPoses, MasksByRank, architecture_of, require
from capszoo.visualize.common import (
    BATCH,
    checked,
    montage,
    new_figure,
    routed_layer,
    show_image,
)
from capszoo.visualize.routing import coefficients


def ranked_support(model, images, layer=None):
    """Mean routing support of the best supported capsule, of the second, and so on: `[O]`, as shares of the first.

        s_r = mean_b psi_(r) / mean_b psi_(0)

    where:
      images: `[B, H, W, C]`.
      layer: name of a layer of capsules whose children are all the vector capsules of a grid; by default the last one.
      psi_(r): the support with rank r in an image, without boosts, by the rule of the layer; see
        `capszoo.layers.LatentCapsules`.

    Routing that decides nothing gives ones; routing that selects falls off steeply.
    Errors: as those of `capszoo.visualize.coefficients`; `ValueError` for children that are not vectors on a grid.
    Source: Rawlinson et al. 2018, figure 3.
    """
    images = checked(model, images)
    routed = routed_layer(model, layer)
    children, rule = keras.tree.flatten(routed.input), getattr(routed, "support", "paper")
    grid = tuple(children[0].shape[1:-1])
    if len(children) != 1 or len(grid) != 3:
        raise ValueError(f"children must be [B, H, W, types, D]. Received: {children}")
    support = np.concatenate(
        [
            routing_support(coefficients(model, images[start : start + BATCH], layer=layer)[-1], grid, rule)
            for start in range(0, len(images), BATCH)
        ]
    )
    means = np.sort(support, axis=-1)[:, ::-1].mean(axis=0)
    return means / means[0]


def rank_frequencies(model, images):
    """How often each latent capsule has each rank: shares of the images `[L, ranks]`; rows and columns sum to one.

    where:
      images: `[B, H, W, C]`.

    Ranks are those of the mask: by boosted support, 0 the largest; in a dense network by support alone.
    Errors: `ValueError` for a model that masks no capsules and for images of another shape than the model's.
    Source: Rawlinson et al. 2018, figure 4.
    """
    images = checked(model, images)
    architecture = architecture_of(model, MasksByRank, "a frequency of ranks")
    support = model.predict(images, batch_size=BATCH, verbose=0)["scores"]
    ranks = ops.convert_to_numpy(architecture.ranks(model, support))
    return (ranks[:, :, None] == np.arange(ranks.shape[1])).mean(axis=0)


def capsule_reconstructions(model, images):
    """What the decoder makes of each latent capsule alone, and of all but it: two arrays `[B, L, H, W, C]` in [0, 1].

    where:
      images: `[B, H, W, C]`.

    Poses are multiplied by the mask.
    Errors: `ValueError` for a model that masks no capsules and for images of another shape than the model's.
    Source: Rawlinson et al. 2018, figure 2.
    """
    images = checked(model, images)
    architecture = architecture_of(model, MasksByRank, "a reconstruction of each capsule")
    require(architecture, DecodesPoses, "a reconstruction of each capsule")
    outputs = model.predict(images, batch_size=BATCH, verbose=0)
    capsules = outputs["presence"].shape[1]
    alone = np.eye(capsules, dtype="float32")
    decoded = []
    for poses, presence in zip(outputs["poses"], outputs["presence"], strict=True):
        # [2 L, L]: which capsules are decoded in each reconstruction
        selection = np.concatenate([alone, 1 - alone]) * presence
        images_of = architecture.decode(model, poses[None], selection[None])
        decoded.append(np.split(ops.convert_to_numpy(images_of)[0], 2))
    return tuple(np.stack(part) for part in zip(*decoded, strict=True))


def draw_ranked_support(support):
    """A figure with a line for each model: support by rank.

    where:
      support: name of the model -> `[O]`, what `ranked_support` returns.

    Source: Rawlinson et al. 2018, figure 3.
    """
    figure = new_figure(width=5, height=3.5)
    axes = figure.subplots()
    for name, values in support.items():
        axes.plot(values, marker="o", label=name)
    axes.set(xlabel="rank", ylabel="mean routing support, share of rank 0")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def draw_rank_frequencies(frequencies, bounds=None):
    """A figure with a line for each capsule: how often it has each rank.

    where:
      frequencies: `[L, ranks]`, what `rank_frequencies` returns.
      bounds: the least and the largest frequency of rank 0 that boosting leaves alone, drawn as a grey bar; None
        draws none.

    Source: Rawlinson et al. 2018, figure 4.
    """
    frequencies = np.asarray(frequencies)
    figure = new_figure(width=5, height=3.5)
    axes = figure.subplots()
    if bounds is not None:
        axes.fill_between([-0.3, 0.3], *bounds, color="lightgrey", zorder=0)
    for row in frequencies:
        axes.plot(row, marker=".", linewidth=0.8)
    axes.set(xlabel="rank", ylabel="share of images")
    axes.set_ylim(bottom=0)
    return figure


def draw_capsule_reconstructions(image, reconstruction, alone, without):
    """A figure of one image: three rows with a column for each capsule, and image and reconstruction before them.

    The rows are the reconstruction from the capsule alone, from all others, and how far the latter is from that of
    all (white: far).

    where:
      image, reconstruction: `[H, W, C]` in [0, 1].
      alone, without: `[L, H, W, C]`, what `capsule_reconstructions` returns for the image.

    Errors: `ValueError` for arrays of other shapes.
    Source: Rawlinson et al. 2018, figure 2.
    """
    image, reconstruction, alone, without = map(np.asarray, (image, reconstruction, alone, without))
    if not alone.shape == without.shape == (len(alone), *image.shape) or image.shape != reconstruction.shape:
        raise ValueError(
            f"reconstructions must have the shape of the image, {image.shape}. Received: "
            f"{reconstruction.shape}, {alone.shape}, {without.shape}"
        )
    blank = np.zeros_like(image)
    rows = np.stack([alone, without, np.abs(without - reconstruction)])
    first = np.stack([image, reconstruction, blank])[:, None]
    figure = new_figure(width=0.6 * (len(alone) + 1) + 1.2, height=2.2)
    axes = figure.subplots()
    show_image(axes, montage(np.concatenate([first, rows], axis=1)))
    height, width = image.shape[:2]
    axes.set_yticks([height * (row + 0.5) for row in range(3)], ["alone", "without", "change"])
    axes.set_xticks(
        [width * (column + 0.5) for column in range(len(alone) + 1)],
        ["image, all", *map(str, range(len(alone)))],
        fontsize="x-small",
    )
    axes.set_xlabel("capsule")
    return figure
