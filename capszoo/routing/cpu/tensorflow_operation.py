"""A pair of functions of arrays as a differentiable operation of TensorFlow: a call from its graph to this process."""

import tensorflow as tf


def operation(forward, backward, shapes):
    """`run(*inputs)` -> two tensors, means and logits of parents; its gradient is `backward`.

    where:
      forward: `(*inputs) -> (first, second, *kept)`, arrays of float32.
      backward: `(d_first, d_second, inputs, kept)` -> gradients of the inputs.
      shapes: `images ->` those of what `forward` returns.

    Errors: `NotImplementedError` where the gradient is to be differentiated again.
    """
    made = len(shapes(0))

    @tf.custom_gradient
    def differentiated(*arguments):
        inputs = arguments[2 : len(arguments) - (made - 2)]

        def way_back(d_first, d_second, *arrays):
            return backward(d_first, d_second, arrays[: len(inputs)], arrays[len(inputs) :])

        found = tf.numpy_function(way_back, arguments, [tf.float32] * len(inputs))
        for value, like in zip(found, inputs, strict=True):
            value.set_shape(like.shape)
        return found, _once

    @tf.custom_gradient
    def run(*inputs):
        first, second, *kept = tf.numpy_function(forward, inputs, [tf.float32] * made)
        return (first, second), lambda *slopes: differentiated(*slopes, *inputs, *kept)

    return run


def _once(*_):
    # TensorFlow would take what is not differentiable for constant.
    raise NotImplementedError(
        "compiled routing is differentiated once only. For gradients of gradients route by the graph, inside "
        "`capszoo.routing.cpu.host_calls(False)`; those of LSTM routing are there under JAX only."
    )
