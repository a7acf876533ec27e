"""Routing as functions of TensorFlow, and what they are traced for."""

import contextlib
import contextvars
import functools

import keras

# Keras does not export it.
from keras.src.backend.common.stateless_scope import in_stateless_scope

_FOR_PROCESSORS = contextvars.ContextVar("capszoo_for_processors", default=False)


@contextlib.contextmanager
def for_processors():
    """Inside, graphs are traced for processors, as those of servers are, whatever accelerators this machine has."""
    token = _FOR_PROCESSORS.set(True)
    try:
        yield
    finally:
        _FOR_PROCESSORS.reset(token)


def is_for_processors() -> bool:
    """Whether what is traced here and now is for processors, see `for_processors`."""
    return _FOR_PROCESSORS.get()


def compiled(procedure):
    """`procedure` as a `tf.function` on the TensorFlow backend; as it is elsewhere, where jit is the caller's.

    It is traced for each purpose by itself: a graph for accelerators does not fit processors, and XLA cannot compile
    the gradient of a loop that was traced without it, whose lists have sizes that it does not know.
    """
    if keras.backend.backend() != "tensorflow":
        return procedure
    import tensorflow as tf

    def traced(*arguments):
        return procedure(*(_of_unknown_size(part) if tf.is_tensor(part) else part for part in arguments))

    graphs = functools.cache(lambda *purpose: tf.function(traced, autograph=False))

    # The plain function around it keeps Keras from tracking the graph as a part of the layer, which would save
    # every trace ever made with the model.
    def route(*arguments):
        # A trace made where weights stand for others, as while Keras builds a layer that contains this one, would keep
        # their values for all later calls.
        return (procedure if in_stateless_scope() else graphs(_for_xla(), is_for_processors()))(*arguments)

    return route


def _for_xla():
    """Whether XLA compiles what TensorFlow traces here and now."""
    import tensorflow as tf
    from tensorflow.python.ops import control_flow_util  # There is no public way to ask.

    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def _of_unknown_size(tensor):
    """`tensor`, but where an axis is known to be empty the graph does not know its size.

    TensorFlow's constant folding divides by that size, which ends the process.
    """
    import tensorflow as tf

    if 0 not in tensor.shape:
        return tensor
    return tf.compat.v1.placeholder_with_default(tensor, [size or None for size in tensor.shape])
