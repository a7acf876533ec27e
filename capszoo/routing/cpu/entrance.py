"""The only way from Python into compiled code: what a kernel will read or write is checked before it is called.

Kernels see arrays as flat rows of float32 numbers and compute themselves where each number lies. An array of another
dtype, smaller than they think, or with gaps between its numbers would be read past its end. So every kernel says which
shapes its arrays have, and a call that does not keep to them is refused.
"""

import numpy as np
from numba import njit

from capszoo.routing.cpu.compiling import enable_caching
from capszoo.routing.cpu.threads import in_parts


class Kernel:
    """Compiled code that does one of several parts of the work, and can only be called for all of them.

    where:
      function: `(problem, *groups, part)`, of flat arrays. It lets other threads of Python run, which share the parts
        out: with threads of Numba's own it would be compiled twice.
      shapes: checks a problem and returns the shapes of the arrays, in the order and the groups of the kernel: named
        tuples of shapes, or the shape of a single array.
      parts: `problem -> ` number of parts.
      dispatcher: Numba's object, for its statistics and the place of its machine code; nobody else calls it.
    """

    def __init__(self, function, shapes, parts):
        self.dispatcher = njit(nogil=True, error_model="numpy")(function)
        self.shapes, self._parts = shapes, parts
        enable_caching(self.dispatcher)

    def __call__(self, problem, *groups):
        """Does all parts of the work on `groups` of arrays, some of which it fills.

        Errors: `TypeError` for what is no array of float32; `ValueError` for another shape or other strides than the
        kernel's, and for a problem that contradicts itself; always before the kernel begins.
        """
        flat = [_checked(group, shape) for group, shape in zip(groups, self.shapes(problem), strict=True)]
        in_parts(lambda part: self.dispatcher(problem, *flat, part), self._parts(problem))

    def filled(self, problem, *groups):
        """Does all of the work on `groups`, the first of the kernel's, and returns the others, which begin as zeros."""
        made = [_zeros(shape) for shape in self.shapes(problem)[len(groups) :]]
        self(problem, *map(_as_writable, groups), *made)
        return made


def kernel(shapes, parts):
    """Makes a `Kernel` of the function below."""
    return lambda function: Kernel(function, shapes, parts)


def _zeros(shape):
    if hasattr(shape, "_fields"):
        return type(shape)(*map(_zeros, shape))
    return np.zeros(shape, np.float32)


class _Numbers:
    """The numbers of an array, for an array that may be written."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def _as_writable(group):
    """`group`, which is only read, with arrays that may be written: for others, such as JAX's, Numba compiles anew."""
    if hasattr(group, "_fields"):
        return type(group)(*map(_as_writable, group))
    if isinstance(group, np.ndarray) and not group.flags.writeable:
        return np.asarray(_Numbers(group))
    return group


def _checked(group, shape, name="array"):
    """`group` with all of its arrays flat."""
    if hasattr(shape, "_fields"):
        parts = zip(group, shape, shape._fields, strict=True)
        return type(shape)(*(_checked(*part) for part in parts))
    check_array(name, group, np.float32, shape)
    return group.reshape(-1)


def check_array(name, array, dtype, shape):
    """Errors: `TypeError` and `ValueError` unless `array` is a contiguous array of this dtype and shape."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        received = getattr(array, "dtype", type(array).__name__)
        raise TypeError(f"{name} must be an array of {np.dtype(dtype).name}. Received: {received}")
    if array.shape != tuple(shape):
        raise ValueError(f"{name} must have the shape {tuple(shape)}. Received: {array.shape}")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise ValueError(f"{name} must be contiguous, its last axis first. Received strides: {array.strides}")


def check_range(name, values, end):
    """Errors: `ValueError` unless all integers are at least zero and below `end`."""
    if values.size and (values.min() < 0 or values.max() >= end):
        raise ValueError(f"{name} must be in [0, {end}). Received: {values.min()} to {values.max()}")


def check_count(name, value, least=0):
    """Errors: `ValueError` unless `value` is an integer of at least `least`."""
    if not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}. Received: {value!r}")
