"""COIL-20: twenty objects on a turntable, photographed every 5 degrees; known objects from new viewpoints."""

import dataclasses
import functools
from pathlib import Path

import numpy as np

from capszoo.config import section
from capszoo.data.cropping import CroppedImages, CroppedSplit, resize
from capszoo.data.prepared import read_prepared
from capszoo.data.sources import tfds_folders

# Azimuths of each split, in degrees modulo 20: every fourth view trains.
AZIMUTHS = {"train": (0,), "validation": (10,), "test": (5, 15)}


@section("data", "coil20")
@dataclasses.dataclass(frozen=True)
class Coil20(CroppedImages):
    """COIL-20 with smallNORB's preprocessing: 360 views train, 360 validate, and the 720 between them test.

    A batch has grey images, the object as `labels`, and `azimuth` (int64 [n], in degrees). Every object is in every
    split; training sees it every 20 degrees, validation is half way between, and a test view is 5 degrees from the
    nearest training view.

    where:
      size to stretch: see `CroppedImages`; the files have 32 x 32 pixels.

    Source: S. A. Nene, S. K. Nayar, H. Murase 1996, "Columbia Object Image Library (COIL-20)", processed images.
    Differs from the paper: images of 128 x 128 pixels were reduced to 32 x 32 by averaging; the split is ours.
    Errors: `ValueError` for an option out of range; `DataNotFound` from `open`.
    """

    size: int = 32
    crop: int = 28

    num_classes = 20
    licence = "COIL-20 by Nene, Nayar, Murase, Columbia University; non-commercial research only"
    class_names = tuple(f"object {number}" for number in range(1, 21))
    raw_shape = (32, 32, 1)

    def open(self, split: str) -> CroppedSplit:
        """The split "train", "validation" or "test"."""
        if split not in AZIMUTHS:
            raise ValueError(f"a split is one of {', '.join(AZIMUTHS)}. Received: {split!r}")
        images, labels, azimuth = read_views(self.size, tuple(tfds_folders()))
        keep = np.isin(azimuth % 20, AZIMUTHS[split])
        factors = {"azimuth": azimuth[keep]}
        return CroppedSplit(images[keep], labels[keep], factors, self, augmented=split == "train")


@functools.lru_cache(maxsize=2)
def read_views(size: int, folders: tuple[Path, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All views uint8 [1440, size, size, 1], their objects and azimuths, in the order of these.

    Errors: `DataNotFound` where none of `folders` has a prepared copy; `ValueError`, naming it, for a damaged one.
    """

    def convert(batch):
        return {**batch, "image": resize(batch["image"], size)}

    provided_by = "a copy with the features image, label and azimuth; TFDS has no builder for it"
    views = read_prepared("coil20", "train", folders, convert, provided_by)
    order = np.lexsort((views["azimuth"], views["label"]))
    return tuple(views[name][order] for name in ("image", "label", "azimuth"))
