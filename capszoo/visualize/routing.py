"""Which children are routed to which parents."""

import numpy as np
from keras import ops

from capszoo.visualize.common import checked, checked_names, in_batches, new_figure, routed_layer


def coefficients(model, images, num_iterations=None, layer=None):
    """Coefficients of a layer's routing in every iteration: `[T, B, I, O]`; convolutional: `[T, B, H', W', I, O]`.

    where:
      images: `[B, H, W, C]`.
      num_iterations: T; None is the model's own count.
      layer: name of a layer that routes; by default the last one.
      I: children of one parent, the types as the fastest axis. For class capsules they are all of the layer below,
        `[H', W', types]`; in a convolutional layer those in the window of the parent at (H', W').
      O: types of parents; for class capsules, the classes.

    About 140 KB for each image of a 28x28 model of dynamic routing with three iterations.
    Errors: `ValueError` for a model without a layer, or without one of that name, that routes, for images of another
    shape than the model's, and for `num_iterations` below one.
    """
    images = checked(model, images)
    layer = routed_layer(model, layer)
    batches = []
    for children in in_batches(model, layer.input, images):
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
    out what the child sends nowhere, and in a convolutional layer what it sends to other positions. A child that sends
    nothing has entropy 0.
    """
    coefficients = np.asarray(coefficients, dtype="float64")
    total = coefficients.sum(axis=-1, keepdims=True)
    shares = np.divide(coefficients, total, out=np.zeros_like(coefficients), where=total > 0)
    # 0 ln 0 = 0
    return -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=-1)


def coefficients_by_type(coefficients, types):
    """Mean coefficient from each type of child to each parent, over images and positions: `[T, types, O]`.

    where:
      coefficients: `[T, B, ..., I, O]` with the types as the fastest axis of I, as `coefficients` returns them.

    Errors: `ValueError` where I is not a multiple of `types`.
    """
    iterations, (children, parents) = len(coefficients), coefficients.shape[-2:]
    if types < 1 or children % types:
        raise ValueError(f"the {children} children must be a multiple of the types. Received types: {types}")
    # [T, B, ..., I, O] -> [T, B * positions, types, O]
    return coefficients.reshape(iterations, -1, types, parents).mean(axis=1)


def draw_coefficients(coefficients, types, class_names=None):
    """A figure with one heat map per iteration: mean coefficient from each type of child to each parent.

    where:
      coefficients: `[T, B, ..., I, O]`, what the function `coefficients` returns. Images of one class show most:
        over all classes the mean is nearly uniform.
      types: number of types of children, 32 in the paper's network.
      class_names: the O names; None numbers the parents.

    All panels share their colours, from zero to the largest mean.
    Errors: `ValueError` where I is not a multiple of `types`, or for another number of names than classes.
    """
    means = coefficients_by_type(np.asarray(coefficients), types)
    names = checked_names(class_names, means.shape[-1])
    figure = new_figure(width=max(0.26 * len(means) * len(names) + 1.5, 4.5), height=0.13 * types + 2)
    panels = figure.subplots(1, len(means), sharey=True, squeeze=False)[0]
    for iteration, (axes, mean) in enumerate(zip(panels, means, strict=True), start=1):
        picture = axes.imshow(mean, vmin=0, vmax=means.max(), aspect="auto", cmap="viridis")
        axes.set(title=f"iteration {iteration}", xlabel="parent")
        axes.set_xticks(range(len(names)), names, rotation=90)
    panels[0].set_ylabel("type of child")
    figure.colorbar(picture, ax=list(panels), label="mean coefficient, from 0 to 1")
    return figure
