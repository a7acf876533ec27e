"""Kernels as differentiable operations of TensorFlow, and tensors in the order of their lanes."""

import math

import tensorflow as tf

from capszoo.routing.cpu.lanes import LANES
from capszoo.routing.cpu.votes import POSE


def operation(forward, backward, saved=0):
    """`run(*inputs)` -> two tensors, means and logits of parents; its gradient is `backward`.

    where:
      forward: `(*inputs) -> (first, second, *kept)`, arrays; `saved` says how many are kept for the way back.
      backward: `(d_first, d_second, inputs, kept)` -> gradients of the inputs; where several parts of one are
        given, one after the other, they are added up here.

    Errors: `NotImplementedError` where the gradient is to be differentiated again.
    """

    def way_back(d_first, d_second, *arrays):
        inputs, kept = arrays[: len(arrays) - saved], arrays[len(arrays) - saved :]
        gradients = backward(d_first, d_second, inputs, kept)
        return [_together(gradient, array.shape) for gradient, array in zip(gradients, inputs, strict=True)]

    @tf.custom_gradient
    def differentiated(*arguments):
        inputs = arguments[2 : len(arguments) - saved]
        found = tf.numpy_function(way_back, arguments, [tf.float32] * len(inputs))
        for value, like in zip(found, inputs, strict=True):
            value.set_shape(like.shape)
        return found, _once

    @tf.custom_gradient
    def run(*inputs):
        first, second, *kept = tf.numpy_function(forward, inputs, [tf.float32] * (2 + saved))
        return (first, second), lambda *slopes: differentiated(*slopes, *inputs, *kept)

    return run


def kernels_of(problem, inputs, forward, backward, fit=None):
    """`run(*arrays)` -> means and logits of parents, differentiable, by two kernels.

    where:
      problem: of the kernels, but for its number of images, which is that of the first array.
      inputs: the named tuple that both kernels take the arrays in.
      forward: the `Kernel` that makes means and logits; or, where `fit` is given, one such named tuple. Its `mean` and
        `logits` have an axis of iterations, the last of which are meant.
      backward: the `Kernel` that takes the inputs, the fit if there is one, and the gradients of means and logits, and
        makes those of the inputs; of weights for each chunk of images.
    """

    def given(arrays):
        return problem._replace(images=len(arrays[0])), inputs(*arrays)

    def way_out(*arrays):
        made = forward.filled(*given(arrays))
        return (made[0].mean[:, -1], made[0].logits[:, -1], *made[0]) if fit else made

    def way_back(d_mean, d_logits, arrays, kept):
        between = (fit(*kept),) if fit else ()
        (gradients,) = backward.filled(*given(arrays), *between, d_mean, d_logits)
        return gradients

    return operation(way_out, way_back, saved=len(fit._fields) if fit else 0)


def _once(*_):
    # TensorFlow would take what is not differentiable for constant.
    raise NotImplementedError(
        "compiled routing is differentiated once only. For gradients of gradients route by the graph, inside "
        "`capszoo.routing.cpu.host_calls(False)`."
    )


def _together(gradient, shape):
    parts = gradient.reshape(gradient.size // max(1, math.prod(shape)), *shape)
    return parts[0] if len(parts) == 1 else parts.sum(axis=0)


def padded(values):
    """Values `[..., O]`, one per type of parent, with zeros up to whole blocks of lanes."""
    return tf.pad(values, [(0, 0)] * (len(values.shape) - 1) + [(0, -values.shape[-1] % LANES)])


def matrices_to_lanes(matrices):
    """Transformations `[matrices, 4, O, 4]` -> `[matrices, K, 16, lanes]`."""
    matrices = padded(tf.transpose(matrices, (0, 1, 3, 2)))
    return tf.transpose(tf.reshape(matrices, (-1, POSE, matrices.shape[-1] // LANES, LANES)), (0, 2, 1, 3))


def from_lanes(mean, logits, positions, types, activation=tf.sigmoid):
    """Flat means `[B, P, K, 16, lanes]` and logits -> poses `[B, P, O, 16]` and activations `[B, P, O]`."""
    blocks = -(-types // LANES)
    mean = tf.transpose(tf.reshape(mean, (-1, positions, blocks, POSE, LANES)), (0, 1, 2, 4, 3))
    mean = tf.reshape(mean, (-1, positions, blocks * LANES, POSE))[:, :, :types]
    return mean, activation(tf.reshape(logits, (-1, positions, blocks * LANES))[:, :, :types])
