"""Routing from poses to parents compiled for the CPU, in place of votes and a graph over them.

A fused routing is a call from the graph to this process, for all iterations or for each of them: it belongs to
training and prediction here, never to an exported model, and XLA cannot compile it. It is therefore used
  - where layers run eagerly,
  - in `fit`, `evaluate`, `predict` and their kin of any Keras model without XLA, however it contains the layer,
  - inside `host_calls(True)`,
and of these only on the TensorFlow backend, with Numba installed, without a GPU and without a distribution strategy.
Everywhere else the graph form computes the same; and it alone has gradients of gradients.
"""

import contextlib
import contextvars
import functools
import importlib.util
import sys
import warnings

import keras

# What Keras' trainers trace, whoever has written it.
_STEPS = ("train_step", "test_step", "predict_step")
_ALLOWED = contextvars.ContextVar("capszoo_host_calls", default=None)


@contextlib.contextmanager
def host_calls(allowed):
    """Inside, layers may (True) or must not (False) route by a call to this process, even while a graph is traced."""
    token = _ALLOWED.set(allowed)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def enabled():
    """Whether a layer that is called here and now may use its fused form."""
    if keras.backend.backend() != "tensorflow" or not _usable():
        return False
    import tensorflow as tf

    if tf.distribute.has_strategy():
        return False
    allowed = _ALLOWED.get()
    if allowed is None:
        allowed = tf.executing_eagerly() or _in_this_process(sys._getframe(1))
    return allowed


def _in_this_process(frame):
    """Whether a graph that is being traced belongs to a step of a Keras model, without XLA, which only runs here.

    Who calls is asked of the stack: a model may lie inside any other, and nothing that is handed down says for what it
    is called. An export is no step, and a vectorised loop cannot contain a call to this process. Warns, once, of such
    graphs; not where Keras only asks for shapes.
    """
    while frame is not None:
        name, caller = frame.f_code.co_name, frame.f_locals.get("self")
        if name in _STEPS and isinstance(caller, keras.Model):
            return not caller.jit_compile
        if name == "compute_output_spec":
            return False
        if name == "vectorized_map":
            break
        frame = frame.f_back
    _warn()
    return False


@functools.cache
def _warn():
    warnings.warn(
        "capsules are routed by a graph here, several times slower than by compiled routing: that runs in "
        "`fit`, `evaluate`, `predict` and their kin of Keras models, wherever layers run eagerly, and inside "
        "`capszoo.routing.cpu.host_calls(True)`.",
        stacklevel=2,
    )


@functools.cache
def _usable():
    """Whether there is a compiler for the CPU and no accelerator that would be faster."""
    if importlib.util.find_spec("numba") is None:
        return False
    import tensorflow as tf

    return not tf.config.list_physical_devices("GPU")
