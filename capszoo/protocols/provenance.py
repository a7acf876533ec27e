"""When, with which code and with which libraries something was made."""

import datetime
import functools
import hashlib
import platform
import subprocess
import sys
from pathlib import Path

import capszoo
from capszoo import config

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

    After commas follow the packages from elsewhere that have registered something, each with ten digits of the SHA-256
    of its code: `0.1.0 0123456789, example 9876543210`.
    Read once: what is committed while a process measures is not the code that it runs.
    """
    return ", ".join([_own_revision(), *_code_from_elsewhere()])


def is_committed(revision) -> bool:
    """Whether the code of capszoo was that of a commit or of a release."""
    return not revision.partition(", ")[0].endswith("+")


def _own_revision():
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


def _code_from_elsewhere():
    packages = {cls.__module__.partition(".")[0] for cls in config.registered()} - {capszoo.__name__}
    for package in sorted(packages):
        digest = hashlib.sha256()
        for name, module in sorted(sys.modules.items()):
            file = getattr(module, "__file__", None)
            # What is typed into a notebook lies in no file.
            if name.partition(".")[0] == package and file and Path(file).is_file():
                digest.update(Path(file).read_bytes())
        yield f"{package} {digest.hexdigest()[:10]}"


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
