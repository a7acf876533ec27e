"""How functions become machine code, in half the time that Numba's defaults take."""

from pathlib import Path

from numba import njit

# What Python calls. It lets other threads of Python run, which share the work out, see `threads`: with threads of
# Numba's own it would be compiled twice.
kernel = njit(nogil=True, error_model="numpy", cache=True)
# What kernels call.
inner = njit(error_model="numpy", no_cpython_wrapper=True)


def forget_stale(*kernels):
    """Deletes what Numba has kept of `kernels` from before the newest change in this folder.

    Numba itself looks only at the file of a kernel, not at those of the functions that it calls.
    """
    sources = Path(__file__).parent
    newest = max(path.stat().st_mtime for path in sources.glob("*.py"))
    for function in kernels:
        module = function.py_func.__module__.rsplit(".", 1)[-1]
        for path in Path(function.stats.cache_path).glob(f"{module}.{function.py_func.__name__}-*.nb[ic]"):
            if path.stat().st_mtime < newest:
                path.unlink(missing_ok=True)
