"""Routing from poses to parents compiled for the CPU, in place of votes and a graph over them.

A fused routing is a call from the graph to this process, for all iterations or for each of them: it belongs to
training and prediction here, never to an exported model. It is therefore used, on TensorFlow and on JAX,
  - where layers run eagerly,
  - in `fit`, `evaluate`, `predict` and their kin of any Keras model, however it contains the layer; on TensorFlow of
    those without XLA, which cannot make such a call there,
  - inside `host_calls(True)`,
and of these only with Numba installed, without an accelerator and on one device. Everywhere else the graph form
computes the same; and it alone has gradients of gradients, those of LSTM routing under JAX only, since TensorFlow
differentiates what is computed again for a gradient only once.
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
    """Whether a layer that is called here and now may use its fused form. Warns, once, of graphs that may not."""
    if importlib.util.find_spec("numba") is None or not _numba_works() or not _one_cpu():
        return False
    here = _stays(sys._getframe(1))
    if here is None:
        _warn()
    return bool(here)


def stays_here():
    """Whether what is computed here and now runs on this CPU only, so that a layer may use a form made for it."""
    return _one_cpu() and bool(_stays(sys._getframe(1)))


@functools.cache
def _numba_works():
    """Whether Numba can be imported: one that is older than NumPy cannot."""
    try:
        import numba  # noqa: F401
    except ImportError as error:
        warnings.warn(f"routing is a graph, several times slower than compiled: {error}", stacklevel=3)
        return False
    return True


def _eager():
    if keras.backend.backend() == "jax":
        import jax

        # What is made inside a function that JAX traces is traced as well.
        return not isinstance(jax.numpy.zeros(()), jax.core.Tracer)
    import tensorflow as tf

    return tf.executing_eagerly()


def _distributed():
    """Whether several devices share a batch."""
    if keras.backend.backend() == "jax":
        return keras.distribution.distribution() is not None
    import tensorflow as tf

    return tf.distribute.has_strategy()


def _stays(frame):
    """Whether a call is eager, or traced for a step of a Keras model, which only runs here; None for any other graph.

    Who calls is asked of the stack: a model may lie inside any other, and nothing that is handed down says for what it
    is called. An export is no step, and a vectorised loop cannot contain a call to this process. False where Keras only
    asks for shapes.
    """
    allowed = _ALLOWED.get()
    if allowed is not None or _eager():
        return allowed is not False
    while frame is not None:
        name, caller = frame.f_code.co_name, frame.f_locals.get("self")
        if name in _STEPS and isinstance(caller, keras.Model):
            return keras.backend.backend() == "jax" or not caller.jit_compile
        if name == "compute_output_spec":
            return False
        if name == "vectorized_map":
            break
        frame = frame.f_back
    return None


@functools.cache
def _warn():
    warnings.warn(
        "capsules are routed by a graph here, several times slower than by compiled routing: that runs in "
        "`fit`, `evaluate`, `predict` and their kin of Keras models, wherever layers run eagerly, and inside "
        "`capszoo.routing.cpu.host_calls(True)`.",
        stacklevel=2,
    )


def _one_cpu():
    """Whether the backend computes on one CPU, without an accelerator that would be faster."""
    return _cpu() and not _distributed()


@functools.cache
def _cpu():
    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() == "cpu"
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return not tf.config.get_visible_devices("GPU")
    return False
