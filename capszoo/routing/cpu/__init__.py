"""Routing from poses to parents compiled for the CPU, in place of votes and a graph over them.

A fused routing is a call from the graph to this process, for all iterations or for each of them: it belongs to
training and prediction here, never to an exported model, and XLA cannot compile it. It is therefore used
  - where layers run eagerly,
  - in `fit`, `evaluate`, `predict` and their kin of a `capszoo.models.network.ImageModel` without XLA,
  - inside `host_calls(True)`,
and of these only on the TensorFlow backend, with Numba installed, without a GPU and without a distribution strategy.
Everywhere else the graph form computes the same; and it alone has gradients of gradients.
"""

import collections
import contextlib
import contextvars
import functools
import importlib.util

import keras
import numpy as np

# Who sees whom: child [P, I], which of an image's C children the parents at each of P positions see; matrix [I], which
# of the transformations each of them uses; addition [I * 16], added to its votes; uniform [P, I], its coefficient
# in iteration 0.
Connections = collections.namedtuple("Connections", "child matrix addition uniform")
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

    allowed = _ALLOWED.get()
    if allowed is None:
        allowed = tf.executing_eagerly()
    return allowed and not tf.distribute.has_strategy()


def connections(child, matrix, addition, uniform):
    """`Connections` as kernels take them."""
    return Connections(
        np.ascontiguousarray(child, "int64"),
        np.ascontiguousarray(matrix, "int64"),
        np.ascontiguousarray(addition, "float32").ravel(),
        np.ascontiguousarray(uniform, "float32"),
    )


@functools.cache
def _usable():
    """Whether there is a compiler for the CPU and no accelerator that would be faster."""
    if importlib.util.find_spec("numba") is None:
        return False
    import tensorflow as tf

    return not tf.config.list_physical_devices("GPU")
