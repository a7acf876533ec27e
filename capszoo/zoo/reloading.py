"""`import capszoo` is enough to read `.keras` files of its models, though it does not import Keras.

Keras finds the classes in a file among those that are registered. They are, as soon as both packages are imported, in
either order: what is watched for is the end of Keras' own import.
"""

import contextlib
import importlib
import sys

from capszoo.extras.importing import around_import
from capszoo.zoo.presets import Preset


def watch():
    """Registers what `.keras` files are made of: now where Keras is imported, else once it is."""
    if "keras" in sys.modules:
        _register(sys._getframe())
    else:
        around_import("keras", _registering)


def _register(frame):
    import keras

    keras.saving.register_keras_serializable(package="capszoo")(Preset)
    # A module of this package that has asked for Keras is not done itself; whoever imports it registers its classes.
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("capszoo.") and name != __name__ and frame.f_code.co_name == "<module>":
            return
        frame = frame.f_back
    importlib.import_module("capszoo.data.preprocessing")
    importlib.import_module("capszoo.models")


@contextlib.contextmanager
def _registering():
    """Registers what `.keras` files are made of at the end."""
    yield
    _register(sys._getframe())
