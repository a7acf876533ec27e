"""Libraries that only some uses need, and the names under which pip installs them: `pip install 'capszoo[train]'`.

The core of capszoo lists, loads and predicts; pyproject.toml says which extra brings what. Whatever imports a library
from outside the core does so inside `extra`, so that a library that is missing is an error that says how to get it.
"""

import contextlib
import importlib.util

BACKENDS = ("tensorflow", "jax")


class MissingExtra(ImportError):
    """A library that is not installed; one line that names the extra that brings it."""


@contextlib.contextmanager
def extra(name: str):
    """Around imports: a library that is missing is a `MissingExtra` that names the extra `name`."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = _library(error)
        if missing in BACKENDS and missing not in name.split(","):
            name = f"{missing},{name}"
        raise _missing(missing, name) from error


def require(name: str, *libraries: str):
    """Looks for libraries that another process will import, without importing them.

    Errors: `MissingExtra` for the first that is not installed.
    """
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            raise _missing(library, name)


@contextlib.contextmanager
def backend():
    """Around whatever imports Keras: its backend, where it is missing, is a `MissingExtra` too."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = _library(error)
        if missing not in BACKENDS:
            raise
        raise MissingExtra(
            f"{missing} is not installed. It comes with: pip install 'capszoo[{missing}]'; "
            f"KERAS_BACKEND={' or '.join(BACKENDS)} chooses what networks run on."
        ) from error


def _missing(library, name):
    return MissingExtra(f"{library} is not installed. It comes with: pip install 'capszoo[{name}]'")


def _library(error):
    return (error.name or str(error)).partition(".")[0]
