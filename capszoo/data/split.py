"""What a data set hands out: a split, from which batches are taken by index.

A batch is a plain dict of arrays: `images` float32 [n, H, W, C] in [0, 1], `labels` int64 [n] (or [n, k]
where an image has k labels), and whatever else the data set knows of each image. A split has no order and no
state of its own; `capszoo.data.pipeline` decides which indices make up a batch.
"""

import abc
import enum
import functools
import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from capszoo.config import ConfigError

NOT_CROPPED = "several crops need a data set that crops its images, such as smallnorb."


@enum.unique
class Stream(enum.IntEnum):
    """What random numbers are drawn for: streams of one seed never share a number."""

    ORDER = 0  # of the images of an epoch, numbered by epoch
    AUGMENTATION = 1  # of a training batch, numbered by step
    FIXED = 2  # choices that belong to an evaluation image for good, numbered by block of images
    SUBSET = 3  # of the images that training is confined to
    MIXUP = 4  # of a training batch, numbered by step


def generator(seed: int, stream: Stream, number: int) -> np.random.Generator:
    """A generator that depends on (seed, stream, number) alone.

    It is Philox keyed with (seed, stream), started at the `number`-th stretch of 2^192 draws.

    Errors: `ValueError` for a seed outside [0, 2^64).
    """
    if not 0 <= seed < 2**64:
        raise ValueError(f"a seed is an integer in [0, 2^64). Received: {seed!r}")
    key = np.array([seed, stream], np.uint64)
    counter = np.array([0, 0, 0, number], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


class Split(abc.ABC):
    """Indexable labelled images: `len(split)` of them, read by `batch`, identified by `fingerprint`."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def batch(self, indices: np.ndarray, rng: np.random.Generator | None) -> dict[str, np.ndarray]:
        """The images at `indices`, in that order, with random changes drawn from `rng`.

        `rng=None` means evaluation: nothing random, so the same index gives the same arrays for ever.
        """

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of everything an evaluation on this split depends on."""

    @property
    def margins(self) -> tuple[int, int]:
        """How far the crop can move from the centre, in pixels: up or left, and down or right.

        Errors: `ConfigError` for images that are not cropped.
        """
        raise ConfigError(NOT_CROPPED)

    def shifted(self, down: int, right: int) -> "Split":
        """The same images, their crop moved from the centre by that many pixels.

        Errors: see `margins`; `ValueError` for a crop that would leave the image.
        """
        raise ConfigError(NOT_CROPPED)


def _digest(arrays: Mapping[str, np.ndarray], text: str = "") -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
    return digest.hexdigest()


def to_unit(images: np.ndarray) -> np.ndarray:
    """Grey levels 0..255 of any number type as float32 in [0, 1]."""
    return images.astype(np.float32) / np.float32(255)


class ArraySplit(Split):
    """A split whose images lie in memory.

    where:
      images: uint8 [N, H, W, C], grey levels 0..255.
      labels: integers [N] or [N, k].
      factors: other arrays [N, ...] that go into the batch under their own names.
      augment: `augment(images, rng) -> images` on grey levels 0..255, used only when a batch is given an
        `rng`.

    Errors: `ValueError` for images that are not uint8 [N, H, W, C] or arrays of unequal lengths.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        factors: Mapping[str, np.ndarray] | None = None,
        augment: Callable[[np.ndarray, np.random.Generator], np.ndarray] | None = None,
    ):
        if images.dtype != np.uint8 or images.ndim != 4:
            raise ValueError(f"images must be uint8 [N, H, W, C]. Received: {images.dtype} {images.shape}")
        self.images = images
        self.labels = np.asarray(labels, np.int64)
        self.factors = dict(factors or {})
        self.augment = augment
        for name, array in {"labels": self.labels, **self.factors}.items():
            if len(array) != len(images):
                raise ValueError(f"{name} must have one row per image, {len(images)}. Received: {len(array)}")

    def __len__(self):
        return len(self.images)

    def batch(self, indices, rng=None):
        """The images at `indices`, augmented where an `rng` is given."""
        images = self.images[indices]
        if rng is not None and self.augment is not None:
            images = self.augment(images, rng)
        factors = {name: array[indices] for name, array in self.factors.items()}
        return {"images": to_unit(images), "labels": self.labels[indices], **factors}

    def fingerprint(self):
        """SHA-256 of images, labels and factors."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self):
        return _digest({"images": self.images, "labels": self.labels, **self.factors})


class RenderedSplit(Split):
    """A split whose images are computed from stored ones and a few random numbers, when they are asked for.

    batch(indices) = render(indices, uniform), where:
      uniform: float64 [n, draws] in [0, 1). In training it comes from the batch's `rng`, so that every epoch
        sees new images; in evaluation row i is a pure function of (seed, indices[i]), whatever else is in the
        batch.
      render: `render(indices, uniform) -> batch`.
      arrays, recipe: the stored arrays and the options that `render` computes with, for the fingerprint.
    """

    BLOCK = 256  # evaluation images that share a generator: making one for each image would take longer

    def __init__(
        self,
        length: int,
        draws: int,
        seed: int,
        render: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]],
        arrays: Mapping[str, np.ndarray],
        recipe: str,
    ):
        self._length, self._draws, self._seed = length, draws, seed
        self._render, self._arrays, self._recipe = render, dict(arrays), recipe

    def __len__(self):
        return self._length

    def batch(self, indices, rng=None):
        """The images rendered for `indices`. Errors: `IndexError` for an index outside [0, length)."""
        indices = np.asarray(indices)
        if len(indices) and (indices.min() < 0 or indices.max() >= self._length):
            received = f"{indices.min()}..{indices.max()}"
            raise IndexError(f"indices must be in [0, {self._length}). Received: {received}")
        uniform = self._fixed(indices) if rng is None else rng.random((len(indices), self._draws))
        return self._render(indices, uniform)

    def _fixed(self, indices):
        block, row = np.divmod(indices, self.BLOCK)
        blocks, which = np.unique(block, return_inverse=True)
        shape = (self.BLOCK, self._draws)
        table = [generator(self._seed, Stream.FIXED, number).random(shape) for number in blocks.tolist()]
        return np.reshape(table, (-1, *shape))[which, row]

    def fingerprint(self):
        """SHA-256 of the stored arrays, the options, the length and the seed."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self):
        return _digest(self._arrays, f"{self._recipe} {self._length} {self._seed};")
