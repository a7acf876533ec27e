"""A strided convolution by products of Fourier transforms, for large kernels on small images."""

import functools
import itertools
import math
from pathlib import Path

import keras
import numpy as np
from keras import ops

# Transformed kernels serve a whole batch: with fewer images, or where products save less than half of the work, they do
# not pay. Measured for the primary capsules of Sabour et al. 2017; docs/speed.md has the times.
LEAST_IMAGES = 16
LEAST_SAVING = 2.0
# Sides of the transform beyond which transformed kernels, hundreds of megabytes, cost more than they save.
LARGEST_SIDE = 16


def saves(features, kernel, strides):
    """Whether `convolve` is faster than `ops.conv` for `LEAST_IMAGES` and more of such features."""
    # Matrices of transforms are of known sides.
    if None in features.shape[1:3]:
        return False
    outputs, sides, _ = _geometry(features, kernel, strides)
    # Transforms add up hundreds of numbers, which float16 may not hold.
    if keras.backend.standardize_dtype(features.dtype) not in ("float32", "bfloat16"):
        return False
    if min(outputs) < 1 or max(sides) > LARGEST_SIDE:
        return False
    size, _, channels, filters = kernel.shape
    points, positions = math.prod(sides), math.prod(outputs)
    # Complex products at half of the points, the transform of each image, that of each output.
    transformed = points * strides**2 * channels * (2 * filters + points) + positions * points * filters
    return positions * size**2 * channels * filters >= LEAST_SAVING * transformed


def convolve(features, kernel, strides):
    """`ops.conv(features, kernel, strides, "valid")` in a form that needs fewer multiplications.

        y[o] = sum_p sum_t x_p[o + t] k_p[t],   x_p[u] = x[strides u + p],   k_p[t] = kernel[strides t + p]
             = sum_f d_f Re(exp(2 pi i f.o / n) sum_p X_p[f] conj(K_p[f])) / (n_h n_w)

    where:
      p: the strides x strides phases; each is a convolution without a stride.
      X_p, K_p: their discrete Fourier transforms, of side n = output side + ceil(kernel side / strides) - 1, at which
        the circular correlation equals the valid one. Transforms are products with matrices: sides are ten or so.
      f: frequencies up to their conjugates, of which there are about half; d_f is 1 for its own conjugate, else 2.

    Shapes: features `[B, H, W, C]`, kernel `[K, K, C, M]`, result `[B, H', W', M]`. In float32 the result differs from
    the sum's by some 1e-6 of its size; in bfloat16 transforms are rounded too, which makes the error 1.7 times that
    of rounded features and kernels. On a processor without AVX-512 bfloat16 is computed in float32.
    """
    given = keras.backend.standardize_dtype(features.dtype)
    if given == "bfloat16" and not _adds_bfloat16_in_float32():
        exact = convolve(ops.cast(features, "float32"), ops.cast(kernel, "float32"), strides)
        return ops.cast(exact, given)
    outputs, sides, taps = _geometry(features, kernel, strides)
    size, _, channels, filters = kernel.shape
    analysis, kernel_analysis, synthesis = (
        ops.cast(matrix, features.dtype) for matrix in _transforms(sides, outputs, taps)
    )
    frequencies = analysis.shape[0] // 2
    images = ops.matmul(analysis, _phases(features, sides, strides, channels))
    # Real and imaginary parts of all images are rows beside each other: [F, 1, 2 B, phases * C]
    images = ops.reshape(images, (frequencies, 1, -1, strides**2 * channels))
    padding = [(0, taps * strides - size)] * 2 + [(0, 0)] * 2
    kernels = ops.matmul(kernel_analysis, _kernel_phases(ops.pad(kernel, padding), taps, strides))
    kernels = ops.reshape(kernels, (frequencies, 2, strides**2 * channels, filters))
    products = ops.reshape(ops.matmul(images, kernels), (frequencies, 2, 2, -1, filters))
    real = products[:, 0, 0] - products[:, 1, 1]
    imaginary = products[:, 1, 0] + products[:, 0, 1]
    products = ops.reshape(ops.stack([real, imaginary], axis=1), (2 * frequencies, -1))
    result = ops.reshape(ops.matmul(synthesis, products), (*outputs, -1, filters))
    return ops.transpose(result, (2, 0, 1, 3))


@functools.cache
def _adds_bfloat16_in_float32():
    """Whether products of bfloat16 matrices are added up in float32, as oneDNN does with AVX-512.

    Elsewhere sums are rounded on the way: the result then erred 4.6 times as much as the convolution, which is not.
    """
    processor = Path("/proc/cpuinfo")
    return processor.is_file() and "avx512" in processor.read_text()


def _geometry(features, kernel, strides):
    """Sides of the outputs and of the transforms, and taps of a phase of the kernel along each side."""
    size = kernel.shape[0]
    taps = -(-size // strides)
    outputs = tuple((side - size) // strides + 1 for side in features.shape[1:3])
    return outputs, tuple(output + taps - 1 for output in outputs), taps


def _phases(features, sides, strides, channels):
    """`[B, H, W, C]` -> positions of a phase first: `[n_h * n_w, B * phases * C]`."""
    missing = [max(0, side * strides - given) for side, given in zip(sides, features.shape[1:3], strict=True)]
    features = ops.pad(features, [(0, 0), (0, missing[0]), (0, missing[1]), (0, 0)])
    features = features[:, : sides[0] * strides, : sides[1] * strides]
    features = ops.reshape(features, (-1, sides[0], strides, sides[1], strides * channels))
    return ops.reshape(ops.transpose(features, (1, 3, 0, 2, 4)), (sides[0] * sides[1], -1))


def _kernel_phases(kernel, taps, strides):
    """`[K, K, C, M]` -> taps of a phase first: `[taps * taps, phases * C * M]`."""
    kernel = ops.reshape(kernel, (taps, strides, taps, strides, -1))
    return ops.reshape(ops.transpose(kernel, (0, 2, 1, 3, 4)), (taps**2, -1))


@functools.cache
def _transforms(sides, outputs, taps):
    """Matrices of images and kernels to their transforms, real and imaginary parts in turn, and back to outputs."""
    grid = itertools.product(*map(range, sides))
    opposite = {f: tuple(-part % side for part, side in zip(f, sides, strict=True)) for f in grid}
    kept = [f for f in opposite if f <= opposite[f]]
    images, kernels = _waves(kept, sides, sides), _waves(kept, sides, (taps, taps))
    weights = np.array([1.0 if f == opposite[f] else 2.0 for f in kept]) / np.prod(sides)
    back = _waves(kept, sides, outputs) * np.repeat(weights, 2)[:, None]
    # The conjugate of the kernel's transform makes the product a correlation.
    kernels[1::2] *= -1.0
    return images.astype("float32"), kernels.astype("float32"), back.T.astype("float32")


def _waves(frequencies, sides, extent):
    """exp(-2 pi i f.u / n) for positions u of `extent`: `[2 F, positions]`, real and imaginary parts in turn."""
    positions = np.array(list(itertools.product(*map(range, extent))))
    turns = np.array(frequencies) / np.array(sides) @ positions.T
    waves = np.exp(-2j * np.pi * turns)
    return np.stack([waves.real, waves.imag], axis=1).reshape(-1, len(positions))
