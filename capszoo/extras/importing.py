"""Something to be done around the first import of a library, whoever imports it."""

import contextlib
import importlib.abc
import importlib.util
import sys


def around_import(name, context):
    """Runs the first import of the library `name` inside `context()`, a context manager; nothing where that is over.

    Asked for twice, the same is done once.
    """
    if name not in sys.modules and _Finder(name, context) not in sys.meta_path:
        sys.meta_path.insert(0, _Finder(name, context))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one library by asking the others, until it is imported."""

    def __init__(self, name, context):
        self.name, self.context = name, context

    def __eq__(self, other):
        return isinstance(other, _Finder) and (self.name, self.context) == (other.name, other.context)

    __hash__ = object.__hash__

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        position = sys.meta_path.index(self)
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:  # Whoever asks may only want to know whether it is there.
            sys.meta_path.insert(position, self)
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                # What was found for an earlier question may be executed after the finder is gone.
                with contextlib.suppress(ValueError):
                    sys.meta_path.remove(self)
                with self.context():
                    execute(module)

            spec.loader.exec_module = exec_module
        return spec
