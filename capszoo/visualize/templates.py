"""What a probabilistic capsule network has learnt: its templates, how objects arrange them, and what it samples.

Source: Smith et al. 2020, figures 3, 5, 6 and 7.
"""

import colorsys

import numpy as np
from keras import ops

from capszoo.layers.generative import compose, identity
from capszoo.layers.templates import composite
from capszoo.models.architecture import ComposesTemplates, architecture_of
from capszoo.visualize.common import BATCH, checked, montage, new_figure, show_image


def templates(model):
    """Colour times opacity of each part: `[N, S, S, C]` in [0, 1] (figure 6). Errors: `ValueError` for other models."""
    renderer = _composing(model).renderer(model)
    layers = [ops.sigmoid(weight) for weight in (renderer.templates, renderer.alphas)]
    return ops.convert_to_numpy(layers[0] * layers[1])


def arrangements(model, images):
    """Reconstructions with each part in a hue of its own: `[B, H, W, 3]` in [0, 1] (figures 5 and 7).

    where:
      images: `[B, H, W, C]`.

    Errors: `ValueError` for other models, and for images of another shape than the model's.
    """
    images = checked(model, images)
    _composing(model)
    outputs = model.predict(images, batch_size=BATCH, verbose=0)
    return _coloured(model, outputs["part_poses"], outputs["part_presence"])


def objects(model):
    """What each object looks like in its middle pose, parts in hues as in `arrangements`: `[O, H, W, 3]` in [0, 1].

    A part is as present as the object makes it: with the probability gamma_ij, and as often as it chooses this object
    when all are there, in proportion to rho_ij.
    Errors: `ValueError` for other models.
    """
    selection = _composing(model).selection(model)
    poses = np.swapaxes(_offsets(selection), 0, 1)
    gamma = ops.convert_to_numpy(ops.sigmoid(selection.part_presence))[:, 1:]
    affinity = ops.convert_to_numpy(ops.sigmoid(selection.affinities))
    share = affinity / affinity.max(axis=1, keepdims=True)
    return _coloured(model, poses, (gamma * share).T)


def samples(model, count, seed=0, deviation=0.3):
    """Pictures drawn from the generative model: `[count, H, W, C]` in [0, 1].

    where:
      deviation: of objects' poses; the prior's is 1, far beyond what any data set shows.

    One object is present in each, and parts are where it expects them, with the deviations it allows.
    Errors: `ValueError` for other models.
    """
    selection = _composing(model).selection(model)
    rng = np.random.default_rng(seed)
    chosen = rng.integers(selection.num_objects, size=count)
    moves = deviation * rng.normal(size=(count, 1, 2, 3)).astype("float32") + ops.convert_to_numpy(identity())
    widths = np.swapaxes(ops.convert_to_numpy(selection.deviations()), 0, 1)
    means = ops.convert_to_numpy(compose(moves, np.swapaxes(_offsets(selection), 0, 1)[chosen]))
    poses = means + widths[chosen] * rng.normal(size=means.shape)
    gamma = ops.convert_to_numpy(ops.sigmoid(selection.part_presence))[:, 1:].T[chosen]
    present = rng.random(gamma.shape) < gamma
    picture = _composing(model).renderer(model)(poses.astype("float32"), present.astype("float32"))
    return ops.convert_to_numpy(picture)


def draw_templates(drawn):
    """A figure of templates `[N, S, S, C]` in two rows (figure 6)."""
    drawn = np.pad(np.asarray(drawn), ((0, len(drawn) % 2), (0, 1), (0, 1), (0, 0)))
    figure = new_figure(width=0.3 * len(drawn), height=1.4)
    show_image(figure.subplots(), montage(drawn.reshape(2, -1, *drawn.shape[1:])))
    return figure


def draw_pictures(pictures):
    """A figure of pictures `[N, H, W, C]` side by side, eight in a row."""
    pictures = np.asarray(pictures)
    rows = -(-len(pictures) // 8)
    blank = np.zeros((8 * rows - len(pictures), *pictures.shape[1:]))
    grid = np.concatenate([pictures, blank]).reshape(rows, 8, *pictures.shape[1:])
    figure = new_figure(width=5, height=0.65 * rows)
    show_image(figure.subplots(), montage(grid))
    return figure


def draw_arrangements(images, arranged):
    """A figure of two rows: images `[B, H, W, C]` in grey or colours, and their `arrangements` (figures 5 and 7)."""
    images = np.asarray(images)
    shown = images if images.shape[-1] == 3 else np.repeat(images.mean(axis=-1, keepdims=True), 3, axis=-1)
    return _rows({"image": shown, "parts": np.asarray(arranged)})


def draw_free_form(images, amortised, free):
    """A figure of three rows: images, the network's reconstructions, and those of free-form inference (figure 3).

    where:
      images, amortised, free: `[B, H, W, C]`, in [0, 1]; see
        `capszoo.models.probabilistic.latent_optimisation`.
    """
    return _rows({"image": images, "network": amortised, "free form": free})


def _composing(model):
    return architecture_of(model, ComposesTemplates, "a drawing of templates")


def _rows(named):
    grid = np.stack([np.asarray(pictures) for pictures in named.values()])
    rows, columns, height = grid.shape[:3]
    figure = new_figure(width=0.6 * columns + 1.2, height=0.6 * rows + 0.4)
    axes = figure.subplots()
    show_image(axes, montage(grid))
    axes.set_yticks([height * (row + 0.5) for row in range(rows)], list(named))
    return figure


def _offsets(selection):
    """M_ij of every pair: `[N, O, 2, 3]`."""
    return ops.convert_to_numpy(ops.expand_dims(selection.common_offsets, 1) + selection.offsets)


def _coloured(model, poses, presence):
    """Pictures of parts in hues, `[B, H, W, 3]`; the brightness of ink is kept."""
    poses, presence = np.asarray(poses, "float32"), np.asarray(presence, "float32")
    hues = np.array([colorsys.hsv_to_rgb(part / poses.shape[1], 0.8, 1.0) for part in range(poses.shape[1])])
    renderer, pictures = _composing(model).renderer(model), []
    for start in range(0, len(poses), BATCH):
        rows = slice(start, start + BATCH)
        colours, alphas = renderer.drawn(poses[rows])
        brightness = ops.mean(colours, axis=-1, keepdims=True)
        alphas = alphas * presence[rows, :, None, None, None]
        pictures.append(composite(brightness * hues.astype("float32")[None, :, None, None], alphas))
    return np.concatenate([ops.convert_to_numpy(part) for part in pictures])
