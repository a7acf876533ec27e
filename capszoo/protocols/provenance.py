"""When, with which code and with which libraries something was made."""

import datetime
import functools
import platform
import subprocess
import sys
from pathlib import Path

import capszoo

# What measuring itself writes in a checkout: numbers do not depend on it, since cards hold the hash of their weights.
WRITTEN = ("capszoo/weights", "weights", "export", "docs/results.*", "docs/results_*.png")


def stamp() -> dict[str, str]:
    """What every measurement says of its own making: `date`, `revision` and `backend`."""
    return {"date": today(), "revision": revision(), "backend": backend()}


def today() -> str:
    """The date, ISO 8601, UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


@functools.cache
def revision() -> str:
    """The version of capszoo, and in a checkout the commit, with a plus where code differs from it.

    Read once: what is committed while a process measures is not the code that it runs.
    """
    version = capszoo.__version__
    checkout = Path(__file__).parents[2]
    if not (checkout / ".git").exists():
        return version
    try:
        commit = _git(checkout, "rev-parse", "--short=10", "HEAD")
        others = [f":(exclude){folder}" for folder in WRITTEN]
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", ".", *others)
    except (OSError, subprocess.CalledProcessError):
        return version
    return f"{version} {commit}{'+' if changed else ''}"


def _git(folder, *arguments):
    result = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True)
    return result.stdout.strip()


def backend() -> str:
    """Backend, library versions and processor type."""
    import keras
    import numpy

    name = keras.backend.backend()
    # Not by their distributions, whose names may be others: TensorFlow comes as tensorflow-cpu too.
    libraries = (f"{module.__name__} {module.__version__}" for module in (sys.modules[name], keras, numpy))
    return f"{', '.join(libraries)}, {platform.machine()}"
