"""How functions become machine code, in half the time that Numba's defaults take.

Machine code is kept in `NUMBA_CACHE_DIR`, where that is set, else beside this file, else in the user's cache. Where
none of them can be written, as in a container whose file system is read-only, every process compiles anew, in memory.
"""

import contextlib
import os
from pathlib import Path

from numba import njit, types


def inner(function):
    """What kernels call: compiled once for all values of its arguments.

    Numba would compile it again for each integer that is written in a call.
    """
    compiled = njit(error_model="numpy", no_cpython_wrapper=True)(function)
    template = compiled.get_call_template
    compiled.get_call_template = lambda args, kws: template(tuple(map(_plain, args)), kws)
    return compiled


def _plain(kind):
    return types.unliteral(kind) if isinstance(kind, types.IntegerLiteral) else kind


def enable_caching(compiled):
    """Keeps machine code where there is a folder that can be written."""
    if _has_home():
        # Numba's "no locator available".
        with contextlib.suppress(RuntimeError):
            compiled.enable_caching()
            keep = compiled._cache.save_overload

            def keep_where_there_is_room(*arguments):
                # On a full disk an empty file, by which Numba tries a folder, can still be made.
                with contextlib.suppress(OSError):
                    keep(*arguments)

            compiled._cache.save_overload = keep_where_there_is_room


def _has_home():
    """Whether Numba knows where it may write; without a home it would make a folder of the name `~`."""
    return bool(os.environ.get("NUMBA_CACHE_DIR")) or os.path.expanduser("~") != "~"


def forget_stale(*kernels):
    """Deletes what Numba has kept of `kernels` from before the newest change in this folder.

    Numba itself looks only at the file of a kernel, not at those of the functions that it calls.
    """
    sources = Path(__file__).parent
    newest = max((path.stat().st_mtime for path in sources.glob("*.py")), default=0.0)
    for function in (kernel.dispatcher for kernel in kernels):
        if function.stats.cache_path is None:
            continue
        module = function.py_func.__module__.rsplit(".", 1)[-1]
        for path in Path(function.stats.cache_path).glob(f"{module}.{function.py_func.__name__}-*.nb[ic]"):
            with contextlib.suppress(OSError):  # Another process may be clearing too, or own the file.
                if path.stat().st_mtime < newest:
                    path.unlink()
