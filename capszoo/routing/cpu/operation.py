"""Kernels as differentiable operations of a backend, and tensors in the order of their lanes."""

import math

import keras
from keras import ops

from capszoo.routing.cpu.lanes import LANES
from capszoo.routing.cpu.votes import POSE


def kernels_of(problem, inputs, forward, backward, fit=None):
    """`run(*arrays)` -> means and logits of parents, differentiable once, by two kernels.

    where:
      problem: of the kernels, but for its number of images, which is that of the first array.
      inputs: the named tuple that both kernels take the arrays in.
      forward: the `Kernel` that makes means and logits; or, where `fit` is given, one such named tuple, which is kept
        for the way back. Its `mean` and `logits` have an axis of iterations, the last of which are meant.
      backward: the `Kernel` that takes the inputs, the fit if there is one, and the gradients of means and logits, and
        makes those of the inputs; of weights for each chunk of images.
    """

    def given(arrays):
        return problem._replace(images=len(arrays[0])), inputs(*arrays)

    def way_out(*arrays):
        made = forward.filled(*given(arrays))
        return (made[0].mean[:, -1], made[0].logits[:, -1], *made[0]) if fit else made

    def shapes(images):
        _, *made = forward.shapes(problem._replace(images=images))
        if not fit:
            return made
        last = ((size, *rest) for size, _, *rest in (made[0].mean, made[0].logits))
        return [*last, *made[0]]

    def way_back(d_mean, d_logits, arrays, kept):
        between = (fit(*kept),) if fit else ()
        (gradients,) = backward.filled(*given(arrays), *between, d_mean, d_logits)
        return [_together(gradient, array.shape) for gradient, array in zip(gradients, arrays, strict=True)]

    return operation(way_out, way_back, shapes)


def operation(forward, backward, shapes):
    """A pair of functions of arrays as a differentiable operation of the backend that runs here.

    where:
      forward: `(*inputs) -> (first, second, *kept)`, arrays of float32.
      backward: `(d_first, d_second, inputs, kept)` -> gradients of the inputs.
      shapes: `images ->` those of what `forward` returns.

    Returns `run(*inputs)`, which gives `first` and `second`; its gradient is `backward`.
    """
    if keras.backend.backend() == "jax":
        from capszoo.routing.cpu import jax_operation as of_backend
    else:
        from capszoo.routing.cpu import tensorflow_operation as of_backend
    return of_backend.operation(forward, backward, shapes)


def _together(gradient, shape):
    """The sum of the parts of a gradient, one after the other in an array."""
    parts = gradient.reshape(gradient.size // max(1, math.prod(shape)), *shape)
    return parts[0] if len(parts) == 1 else parts.sum(axis=0)


def padded(values):
    """Values `[..., O]`, one per type of parent, with zeros up to whole blocks of lanes."""
    return ops.pad(values, [(0, 0)] * (len(values.shape) - 1) + [(0, -values.shape[-1] % LANES)])


def matrices_to_lanes(matrices):
    """Transformations `[matrices, width, O, width]` -> `[matrices, K, width * width, lanes]`."""
    matrices = padded(ops.transpose(matrices, (0, 1, 3, 2)))
    _, rows, columns, types = matrices.shape
    matrices = ops.reshape(matrices, (-1, rows * columns, types // LANES, LANES))
    return ops.transpose(matrices, (0, 2, 1, 3))


def from_lanes(mean, logits, positions, types, activation=ops.sigmoid):
    """Flat means `[B, P, K, 16, lanes]` and logits -> poses `[B, P, O, 16]` and activations `[B, P, O]`."""
    blocks = -(-types // LANES)
    mean = ops.transpose(ops.reshape(mean, (-1, positions, blocks, POSE, LANES)), (0, 1, 2, 4, 3))
    mean = ops.reshape(mean, (-1, positions, blocks * LANES, POSE))[:, :, :types]
    return mean, activation(ops.reshape(logits, (-1, positions, blocks * LANES))[:, :, :types])
