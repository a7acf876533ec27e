"""Somebody's own labelled pictures, of any size and kind, as a data set of one size."""

import dataclasses
import hashlib
import math
from typing import Literal

import numpy as np
from PIL import Image

from capszoo.config import require_at_least, require_at_most
from capszoo.data.augment import mirror, shift
from capszoo.data.cropping import standardise
from capszoo.data.dataset import DataSet
from capszoo.data.images import read_image
from capszoo.data.split import ArraySplit, Split

SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class LabelledPictures(DataSet):
    """Pictures and their classes, from wherever a subclass reads them.

    where:
      size: side, or `(height, width)`, that pictures are scaled to, whatever their aspect ratio; None is the size of
        the first one.
      channels: 1 (grey), 3 (colour) or 2 (a stereo pair, the left view in the left half of its picture); None is what
        the first one has.
      standardise: each image gets mean 0 and deviation 1, as networks of smallNORB take them.
      shift: training images are translated at random by up to this many pixels in each axis, at most the smaller side.
      mirror: left and right of half the training images are exchanged; not for stereo pairs, whose depths that inverts.
      test, validation: shares of each class that are taken out, where the source has no such split of its own. Which
        pictures those are depends on nothing but the pictures; with `validation` 0 there is no validation split.
      class_names: of the labels, in order; empty reads them from the source.

    What is read from the source is kept: a recipe with all values can be read without the pictures.
    Errors: `ValueError` for an option out of range.
    """

    size: tuple[int, int] | int | None = None
    channels: Literal[1, 2, 3] | None = None
    standardise: bool = False
    shift: int = 0
    mirror: bool = False
    test: float = 0.2
    validation: float = 0.1
    class_names: tuple[str, ...] = ()

    licence = "the user's own"

    def __post_init__(self):
        if not (0 < self.test < 1 and 0 <= self.validation < 1 and self.test + self.validation < 1):
            received = f"test {self.test}, validation {self.validation}"
            raise ValueError(
                f"test and validation must be shares that leave something to train. Received: {received}"
            )
        require_at_least(self, 0, "shift")
        if len(set(self.class_names)) < len(self.class_names):
            raise ValueError(f"class_names must differ. Received: {', '.join(self.class_names)}")
        if None in (self.size, self.channels) or not self.class_names:
            names, (height, width, channels) = self._look()
            self._keep(class_names=self.class_names or names, channels=self.channels or channels)
            views = 2 if self.channels == 2 else 1
            self._keep(size=(height, width // views) if self.size is None else self.size)
        if isinstance(self.size, int):
            self._keep(size=(self.size, self.size))
        if self.mirror and self.channels == 2:
            raise ValueError("mirror must be false for stereo pairs, of 2 channels. Received: true")
        if min(self.size) < 1:
            raise ValueError(f"size must be at least 1. Received: {self.size}")
        require_at_most(self, shift=min(self.size))
        for name in self.class_names:
            # As of a folder from another system; what is written of a training is UTF-8.
            if name.encode(errors="ignore").decode() != name:
                raise ValueError(f"class_names must be texts of UTF-8; rename the folder. Received: {name!r}")
        if len(self.class_names) < 2:
            raise ValueError(f"at least two classes are needed. Received: {', '.join(self.class_names)}")

    def _keep(self, **values):
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _look(self):
        """Names of the classes, and the shape `(H, W, C)` of the first picture."""
        raise NotImplementedError

    def _read(self, split):
        """Images uint8 `[N, H, W, C]` and labels `[N]` of a split."""
        raise NotImplementedError

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return (*self.size, self.channels)

    @property
    def preprocessing(self) -> dict:
        return {"standardise": True} if self.standardise else {}

    @property
    def raw(self) -> "LabelledPictures":
        return self.unstandardised

    @property
    def unstandardised(self) -> "LabelledPictures":
        return dataclasses.replace(self, standardise=False)

    def open(self, split: str) -> Split:
        """The split "train", "validation" or "test". Errors: `DataNotFound`; `ValueError` for unreadable pictures."""
        if split not in SPLITS:
            raise ValueError(f"a split is one of {', '.join(SPLITS)}. Received: {split!r}")
        images, labels = self._read(split)
        if not len(images):
            without = ", or data.validation=0" if split == "validation" else ""
            raise ValueError(f"the split {split!r} has no pictures; give more, or larger shares{without}.")
        kind = StandardisedSplit if self.standardise else ArraySplit
        augmented = split == "train" and (self.shift or self.mirror)
        return kind(images, labels, augment=self._augment if augmented else None)

    def _augment(self, images, rng):
        if self.mirror:
            images = mirror(images, rng)
        return shift(images, rng, self.shift) if self.shift else images


class StandardisedSplit(ArraySplit):
    """A split whose images get mean 0 and deviation 1, each by itself."""

    def batch(self, indices, rng=None):
        batch = super().batch(indices, rng)
        return {**batch, "images": standardise(batch["images"])}

    def fingerprint(self):
        return hashlib.sha256(f"{super().fingerprint()} standardised".encode()).hexdigest()


def to_levels(picture, image_shape):
    """A picture, a path or a PIL image, as grey levels uint8 `[H, W, C]`, scaled."""
    try:
        image = read_image(picture, image_shape, resize=True)
    except ValueError as error:
        if image_shape[-1] != 2:
            raise
        raise ValueError(f"{error}. Single pictures are read with data.channels=1 or 3.") from error
    return np.round(image * 255).astype(np.uint8)


def array_to_levels(image, image_shape):
    """An array uint8 `[h, w, c]` as grey levels uint8 `[H, W, C]`, scaled; c is 1, 3 or 4."""
    if image.shape == tuple(image_shape):
        return image
    return to_levels(Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image), image_shape)


def shares(keys, labels, test, validation):
    """Which split each picture belongs to, `[N]` of "train", "validation" and "test", by shares of each class.

    where:
      keys: what says, in each class, who comes first: a text of each picture.
    """
    parts = np.full(len(keys), "train", object)
    order = sorted(
        range(len(keys)), key=lambda i: hashlib.sha256(keys[i].encode("utf-8", "surrogateescape")).digest()
    )
    for label in sorted(set(labels)):
        own = [i for i in order if labels[i] == label]
        # At least one each of what is asked for, where there are enough, and one to train.
        tested = min(math.ceil(test * len(own)), len(own) - 1)
        validated = min(math.ceil(validation * len(own)), max(0, len(own) - tested - 1))
        parts[own[:tested]] = "test"
        parts[own[tested : tested + validated]] = "validation"
    return parts
