"""`import capszoo` is enough to read `.keras` files of its models, though it does not import Keras.

Keras finds the classes in a file among those that are registered. They are, as soon as both packages are imported, in
either order: what is watched for is the end of Keras' own import.
"""

import importlib
import importlib.abc
import importlib.util
import sys

from capszoo.zoo.presets import Preset


def watch():
    """Registers what `.keras` files are made of: now where Keras is imported, else once it is."""
    if "keras" in sys.modules:
        _register(sys._getframe())
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


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


class _Finder(importlib.abc.MetaPathFinder):
    """Wraps the first import of Keras."""

    def find_spec(self, name, path, target=None):
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _register(sys._getframe())

            spec.loader.exec_module = exec_module
        return spec
