"""TensorFlow Probability's distributions, of the substrate that fits Keras's backend."""

import contextlib
import functools
import importlib
import importlib.util
import sys

import keras

from capszoo.extras import MissingExtra

SUBSTRATES = {
    "tensorflow": "tensorflow_probability.python.distributions",
    "jax": "tensorflow_probability.substrates.jax.distributions",
}


@functools.cache
def distributions():
    """The module of distributions, such as `distributions().Normal`, whose tensors are those of the Keras backend.

    It is imported when first asked for, since that takes seconds.
    Errors: `ImportError` where TensorFlow Probability has no substrate for the backend; `MissingExtra`.
    """
    require_distributions()
    backend = keras.backend.backend()
    if backend not in SUBSTRATES:
        raise ImportError(f"distributions need the backend {' or '.join(SUBSTRATES)}. Received: {backend!r}")
    try:
        with contextlib.nullcontext() if backend == "tensorflow" else _without_tensorflow():
            return importlib.import_module(SUBSTRATES[backend])
    except (ImportError, AttributeError) as error:
        raise MissingExtra(
            f"TensorFlow Probability does not fit {backend}: pip install 'capszoo[{_extra()}]' ({error})"
        ) from error


def require_distributions():
    """Errors: `MissingExtra` where there is no TensorFlow Probability; found out without importing it."""
    if importlib.util.find_spec("tensorflow_probability") is None:
        raise MissingExtra(f"this network needs TensorFlow Probability: pip install 'capszoo[{_extra()}]'")


def _extra():
    return "generative-jax" if keras.backend.backend() == "jax" else "generative"


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
