"""Random changes of a batch of images, as pure NumPy functions.

Images are [n, H, W, C] of any number type; what lies outside an image is zero unless said otherwise.
Positions are (row, column), in pixels.
"""

from typing import Literal

import numpy as np

# A factor of 1 - stretch must leave something of an image.
MAX_STRETCH = 0.9


def place(images: np.ndarray, pad: int) -> np.ndarray:
    """The images in the middle of a canvas of zeros that is `pad` pixels wider on every side."""
    return np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))


def translate(images: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Each image moved down by its `rows` and right by its `columns`; what leaves the frame is lost.

    out[i, y, x] = images[i, y - rows[i], x - columns[i]], where:
      rows, columns: integers [n].
    """
    if len(images) == 0:
        return images
    height, width = images.shape[1:3]
    reach = int(max(np.abs(rows).max(), np.abs(columns).max()))
    windows = np.lib.stride_tricks.sliding_window_view(place(images, reach), (height, width), axis=(1, 2))
    moved = windows[np.arange(len(images)), reach - rows, reach - columns]  # [n, C, H, W]
    return np.ascontiguousarray(np.moveaxis(moved, 1, -1))


def shift(images: np.ndarray, rng: np.random.Generator, pixels: int) -> np.ndarray:
    """Each image translated by whole pixels, uniform in +-`pixels` in each axis.

    Source: Sabour et al. 2017, authors' code (shift=2 on MNIST; pad=6, shift=6 is the expanded MNIST for
    affNIST).
    Differs from the paper: the authors store every shift of every image and pass over all of them; here one
    offset is drawn each time an image is used.
    """
    rows, columns = rng.integers(-pixels, pixels, size=(2, len(images)), endpoint=True)
    return translate(images, rows, columns)


def mirror(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image with left and right exchanged, or not, with equal chances."""
    exchanged = rng.integers(2, size=len(images), dtype=bool)
    return np.where(exchanged[:, None, None, None], images[:, :, ::-1], images)


def affine(
    images: np.ndarray,
    matrices: np.ndarray,
    size: tuple[int, int] | None = None,
    outside: Literal["constant", "edge"] = "constant",
) -> np.ndarray:
    """Each image under its own affine map, sampled bilinearly; float32, in the units of the input.

    out[i](A_i p + t_i) = images[i](p), with matrices[i] = [A_i | t_i]

    where:
      p: a position (row, column) in pixels from the middle of the image.
      matrices: [n, 2, 3], each A_i invertible.
      size: (height, width) of the result; None keeps that of the images.
      outside: what lies outside an image, zeros or, for "edge", its nearest pixel.
    """
    n, height, width, channels = images.shape
    # A border of one pixel stands for all that lies outside.
    canvas = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), outside)
    canvas = canvas.astype(np.float32).reshape(-1, channels)
    row, column = _sources(np.asarray(matrices, np.float32), size or (height, width), (height, width))
    (top, down), (left, right) = _tap(row, height), _tap(column, width)
    first = (np.arange(n)[:, None, None] * (height + 2) + top) * (width + 2) + left  # [n, h, w]
    down, right = down[..., None], right[..., None]

    def between(start):
        here, there = canvas.take(start, axis=0), canvas.take(start + 1, axis=0)
        return here + right * (there - here)

    upper, lower = between(first), between(first + width + 2)
    return upper + down * (lower - upper)


def _sources(matrices, size, source_size):
    """Where each output pixel comes from: rows and columns [n, h, w] in the image with its border."""
    a, b, c, d = (matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 0], matrices[:, 1, 1])
    inverse = np.stack([d, -b, -c, a], axis=-1) / (a * d - b * c)[:, None]
    grid = [np.arange(n, dtype=np.float32) - np.float32((n - 1) / 2) for n in size]
    rows = (grid[0] - matrices[:, 0, 2, None])[:, :, None]  # [n, h, 1]
    columns = (grid[1] - matrices[:, 1, 2, None])[:, None, :]  # [n, 1, w]
    middle = [np.float32((n - 1) / 2 + 1) for n in source_size]
    a, b, c, d = (inverse[:, i, None, None] for i in range(4))
    return a * rows + b * columns + middle[0], c * rows + d * columns + middle[1]


def _tap(position, length):
    """The pixel before each position and the weight of the one after it; beyond the border is border."""
    position = np.clip(position, 0, length + 1)
    before = np.minimum(position.astype(np.int32), length)
    return before, position - before.astype(position.dtype)


def rotations(degrees: np.ndarray) -> np.ndarray:
    """The matrices [n, 2, 2] that turn positions (row, column) counter-clockwise, as one sees it."""
    angle = np.deg2rad(degrees)
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.stack([np.stack([cosine, -sine], -1), np.stack([sine, cosine], -1)], -2)


def rotate(images: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """Each image turned counter-clockwise about its middle by its own angle, as by `affine`."""
    return affine(images, np.concatenate([rotations(degrees), np.zeros((len(images), 2, 1))], axis=-1))


def deform(
    images: np.ndarray,
    rng: np.random.Generator,
    degrees: float,
    stretch: float = 0.0,
    outside: Literal["constant", "edge"] = "constant",
) -> np.ndarray:
    """Each image stretched along its rows and its columns and then turned, about its middle, as by `affine`.

    A = R(a) diag(f), where:
      R(a): the matrix of `rotations`, a uniform in +-`degrees`.
      f: two factors, uniform in [1 - stretch, 1 + stretch].

    Source: Mazzia et al. 2021, authors' code.
    Differs from the paper: the authors turn half of the images, by a normal angle of deviation 10 degrees, and squeeze
    all along their rows.
    """
    matrices = rotations(rng.uniform(-degrees, degrees, size=len(images)))
    if stretch:
        matrices = matrices * rng.uniform(1 - stretch, 1 + stretch, size=(len(images), 1, 2))
    return affine(images, np.concatenate([matrices, np.zeros((len(images), 2, 1))], axis=-1), outside=outside)
