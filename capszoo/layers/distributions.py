"""TensorFlow Probability's distributions, of the substrate that fits Keras's backend."""

import contextlib
import functools
import importlib
import sys

import keras

SUBSTRATES = {
    "tensorflow": "tensorflow_probability.python.distributions",
    "jax": "tensorflow_probability.substrates.jax.distributions",
}


@functools.cache
def distributions():
    """The module of distributions, such as `distributions().Normal`, whose tensors are those of the Keras backend.

    It is imported when first asked for, since that takes seconds.
    Errors: `ImportError` where TensorFlow Probability is missing, or has no substrate for the backend.
    """
    backend = keras.backend.backend()
    if backend not in SUBSTRATES:
        raise ImportError(f"distributions need the backend {' or '.join(SUBSTRATES)}. Received: {backend!r}")
    try:
        with contextlib.nullcontext() if backend == "tensorflow" else _without_tensorflow():
            return importlib.import_module(SUBSTRATES[backend])
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"probabilistic capsules need TensorFlow Probability for {backend}: "
            f"pip install tfp-nightly{' tf-keras' if backend == 'tensorflow' else ''} ({error})"
        ) from error


@contextlib.contextmanager
def _without_tensorflow():
    """Hides TensorFlow: the other substrates do without it, but import it where they find it, which takes long."""
    if "tensorflow" in sys.modules:
        yield
        return
    sys.modules["tensorflow"] = None
    try:
        yield
    finally:
        del sys.modules["tensorflow"]
