"""Architectures, routings, data sets and protocols from outside the package.

A module that is imported registers what it defines, as the package's own do: with `capszoo.config.section`. Modules are
imported before the first recipe is read or the first protocol asked for, if

  a distribution that is installed names them under the entry-point group `capszoo.plugins`, in its pyproject.toml

      [project.entry-points."capszoo.plugins"]
      example = "capszoo_example"

  or the command line does: `capszoo --import capszoo_example train example.yaml`; such a module may also lie in the
  working directory. The variable CAPSZOO_IMPORT, names with commas between them, says the same to processes that a
  command starts.

A script need not do either: it imports the module itself.
"""

import functools
import importlib
import importlib.metadata
import os
import sys
import traceback
from pathlib import Path

GROUP = "capszoo.plugins"
VARIABLE = "CAPSZOO_IMPORT"
_loaded: set[str] = set()


class PluginError(ImportError):
    """A module from outside the package that cannot be imported."""


def load():
    """Imports the modules of all plugins, each once. Errors: `PluginError` naming the module and who names it."""
    # Every recipe that is read asks, and an answer takes milliseconds: it is good until something is installed.
    for point in _entry_points(tuple((path, _changed(path)) for path in sys.path)):
        _import(point.value, f"entry point {point.name!r} of {point.dist.name}")
    if named() and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for name in named():
        _import(name, f"--import or {VARIABLE}")


def named() -> list[str]:
    """The modules that the command line or the variable names."""
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


def add(modules):
    """Names modules to be imported by this process and by those that it starts."""
    os.environ[VARIABLE] = ",".join([*named(), *modules])


def command(*words) -> list[str]:
    """The words of a `capszoo` command that imports the modules that this process was told to import."""
    return ["capszoo", *(word for name in named() for word in ("--import", name)), *words]


@functools.lru_cache(maxsize=1)
def _entry_points(places):
    """The entry points of plugins, while `places` are what modules are looked for in, and when that changed."""
    return importlib.metadata.entry_points(group=GROUP)


def _changed(path):
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return None


def _import(name, who):
    if name in _loaded:
        return
    if not all(part.isidentifier() for part in name.split(".")):
        raise PluginError(
            f"a plugin is the name of a module, without folder and .py; it may lie in the working directory. "
            f"Received: {name} ({who})"
        )
    # Before it is done: a module may itself read a recipe.
    _loaded.add(name)
    try:
        importlib.import_module(name)
    except Exception as error:
        _loaded.discard(name)
        # A syntax error says itself where it is.
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f", {last.filename}, line {last.lineno}"
        raise PluginError(
            f"the plugin {name!r} ({who}) cannot be imported: {type(error).__name__}: {error}{where}"
        ) from error
