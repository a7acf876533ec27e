"""Files that are seen whole or not at all."""

import contextlib
import os
import re
import uuid
from pathlib import Path

import filelock

from capszoo.config import ConfigError

LOCK = ".lock"


def make_folder(path):
    """Makes a folder, and those above it, unless it is there. Errors: `NotADirectoryError` for a file in its place."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(f"a folder is needed. File exists: {str(path)!r}") from error


@contextlib.contextmanager
def naming(path):
    """An error of a write inside, such as that of a full disk, names `path`: the system's own has no name by then."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def replacing(path):
    """A temporary path beside `path`, to be written inside; at the end it takes the place of `path` in one rename.

    The name is unique wherever the folder is shared: process numbers are not, between containers. After an error the
    temporary file is gone and an earlier file of the name `path` unchanged.
    Errors: `OSError` naming `path`, where it cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with naming(path):
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path, text: str):
    """Writes a text file that nobody sees half-written, whichever processes write it."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_figure(figure, path, **options):
    """Writes a matplotlib `Figure` that nobody sees half-written, of the kind that `path` ends in, else as PNG."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix.removeprefix(".") or "png", **options)


class Busy(ConfigError):
    """Another process is at work in a folder."""


@contextlib.contextmanager
def locked(directory, busy: str, seconds: float = 0.1):
    """No other process is in here for the same folder, which is made. A lock ends with its process, however that ends.

    where:
      busy: what `Busy` says where another process is, and after so many `seconds` still is; who only asks whether
        somebody works there holds the lock for a moment.

    On a file system without `flock` a file says that a process is here. After one that was killed it stays there until
    that machine asks again, or somebody removes it.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(directory / LOCK)
    try:
        lock.acquire(timeout=seconds)
    except filelock.Timeout:
        raise Busy(busy) from None
    try:
        yield
    finally:
        lock.release()


def is_temporary(path) -> bool:
    """Whether a file is what `replacing` leaves where its process is killed."""
    return re.fullmatch(r"\..+\.[0-9a-f]{32}", Path(path).name) is not None


def remove_temporary(directory):
    """Removes what killed processes have left in a folder in which nobody writes at the moment."""
    for path in Path(directory).iterdir():
        if is_temporary(path):
            path.unlink(missing_ok=True)
