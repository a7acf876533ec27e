"""Whether votes agree: how far they lie from their parents, from iteration to iteration."""

import numpy as np
from keras import ops

from capszoo.visualize.common import checked, checked_names, in_batches, new_figure, routed_layer

_BATCH = 4  # images at a time: there is a distance for every vote and iteration


def vote_distances(model, images, layer=None, num_iterations=None):
    """How far each vote lies from its parent in every iteration, and the coefficients to weight it with.

        distance_tij = |V_ij - mu_tj|

    where:
      images: `[B, H, W, C]`.
      layer: name of a layer that routes, by default the last one; num_iterations: T, None is the model's own count.
      V_ij: vote of child i for parent j, in iteration t where votes change.
      mu_tj: the parent's pose after iteration t. Where routing squashes poses (children without activations), the
        mean of the votes, weighted by the coefficients.

    Returns `(distances, coefficients)`, both `[T, B, I, O]`, or `[T, B, H', W', I, O]` of a convolutional layer, with
    axes as in `capszoo.visualize.coefficients`.
    Errors: `ValueError` for a layer whose parents have no poses, and as those of `capszoo.visualize.coefficients`.
    Source: Hinton et al. 2018, figures 2 and B.2. The distance is Euclidean over the entries of a pose; the paper does
    not say.
    """
    images = checked(model, images)
    layer = routed_layer(model, layer)
    if not layer.posed:
        raise ValueError(f"a layer whose parents have poses is needed. Received: {layer.name!r}")
    distances, weights = [], []
    for children in in_batches(model, layer.input, images, _BATCH):
        shares = _history(layer, children, num_iterations)
        weights.append(shares)
        distances.append(np.stack([_distances(layer, children, part, t) for t, part in enumerate(shares, 1)]))
    return np.concatenate(distances, axis=1), np.concatenate(weights, axis=1)


def vote_histogram(distances, coefficients, edges):
    """Coefficients of the votes at each distance, by iteration and parent: `[T, O, bins]`.

        result[t, j, k] = sum of R_tij over all i with edges[k] <= distance_tij < edges[k + 1]

    where:
      distances, coefficients: `[T, B, ..., I, O]`, what `vote_distances` returns; the sum runs over all but T and O.
      edges: bins + 1 ascending distances; the last bin includes its end.

    Source: Hinton et al. 2018, figure 2: "each distance point is weighted by its assignment probability".
    Errors: `ValueError` for arrays of different shapes.
    """
    distances, coefficients = np.asarray(distances), np.asarray(coefficients)
    if distances.shape != coefficients.shape:
        raise ValueError(
            f"each distance must have a coefficient. Received: {distances.shape} and {coefficients.shape}"
        )
    iterations, parents = len(distances), distances.shape[-1]
    # [T, B, ..., I, O] -> [T, O, B * ... * I]
    flat = [np.moveaxis(a.reshape(iterations, -1, parents), -1, 1) for a in (distances, coefficients)]
    rows = zip(*(a.reshape(iterations * parents, -1) for a in flat), strict=True)
    counts = [np.histogram(row, edges, weights=weights)[0] for row, weights in rows]
    return np.reshape(counts, (iterations, parents, -1))


def draw_vote_distances(distances, coefficients, class_names=None, limit=None, bins=None):
    """A figure of histograms, a row for each iteration and a column for each parent.

    where:
      distances, coefficients: what `vote_distances` returns; one image shows most.
      class_names: the O names; None numbers the parents.
      limit: the largest distance shown; all panels then share their scale (figure 2: 0.05). None shows all
        distances, each panel with a logarithmic scale of its own (figure B.2).
      bins: by default 50 up to a limit and 200 without.

    Errors: `ValueError` for arrays of different shapes and for another number of names than parents.
    Source: Hinton et al. 2018, figures 2 and B.2.
    """
    bins = bins or (200 if limit is None else 50)
    edges = np.linspace(0.0, np.max(distances) if limit is None else limit, bins + 1)
    heights = vote_histogram(distances, coefficients, edges)
    names = checked_names(class_names, heights.shape[1])
    figure = new_figure(width=1.6 * len(names) + 1, height=1.3 * len(heights) + 0.9)
    grid = figure.subplots(*heights.shape[:2], sharex=True, sharey=limit is not None, squeeze=False)
    for iteration, (panels, rows) in enumerate(zip(grid, heights, strict=True), start=1):
        panels[0].set_ylabel(f"iteration {iteration}")
        for axes, row in zip(panels, rows, strict=True):
            axes.stairs(row, edges, fill=True)
            if limit is None and row.any():
                axes.set_yscale("log")
    for axes, name in zip(grid[0], names, strict=True):
        axes.set_title(name, fontsize="small")
    figure.supxlabel(
        "distance of a vote from its parent (Euclidean, over the entries of a pose)", fontsize="medium"
    )
    figure.supylabel("votes, weighted by coefficients", fontsize="medium")
    return figure


def _history(layer, children, num_iterations):
    history = layer(children, num_iterations=num_iterations, return_history=True)[-1]
    return ops.convert_to_numpy(history)


def _distances(layer, children, coefficients, iteration):
    """|V_ij - mu_j| `[B, ..., I, O]` after that many iterations."""
    votes = ops.convert_to_numpy(ops.cast(layer.votes_at(children, iteration), "float32"))
    means = _means(layer, children, votes, coefficients, iteration)
    # [B, ..., I, O, D] - [B, ..., 1, O, D]
    return np.linalg.norm(votes - means[..., None, :, :], axis=-1)


def _means(layer, children, votes, coefficients, num_iterations):
    """The centres `[B, ..., O, D]` from which distances are measured, after that many iterations."""
    if isinstance(children, list | tuple):
        # A tensor, so that one graph serves every count.
        count = ops.convert_to_tensor(num_iterations, dtype="int32")
        children = [ops.convert_to_tensor(part) for part in children]
        # [B, ..., I, O, D] -> [B, ..., O, D]
        return _columns(ops.convert_to_numpy(layer.centres_of(children, count)), votes.ndim - 2)
    mass = coefficients.sum(axis=-2)[..., None]
    return (coefficients[..., None] * votes).sum(axis=-3) / np.maximum(mass, np.finfo("float32").tiny)


def _columns(poses, axes):
    """Poses with the first `axes` axes kept: vectors `[..., D]`, and matrices listed column by column."""
    matrices = poses.ndim == axes + 2
    return (poses.swapaxes(-1, -2) if matrices else poses).reshape(*poses.shape[:axes], -1)
