"""Squares in one half of a picture or in the other."""

import dataclasses

import numpy as np

from capszoo.config import section
from capszoo.data.dataset import DataSet
from capszoo.data.split import ArraySplit


@section("data", "squares")
@dataclasses.dataclass(frozen=True)
class Squares(DataSet):
    """Grey pictures of 20x20 with a square in the left half (class 0) or in the right one (class 1)."""

    validation: int = 20

    num_classes = 2
    class_names = ("left", "right")
    licence = "public domain"

    @property
    def image_shape(self):
        return (20, 20, 1)

    def open(self, split):
        parts = {"train": (0, 60), "validation": (1, self.validation), "test": (2, 40)}
        if split not in parts:
            raise ValueError(f"a split is one of {', '.join(parts)}. Received: {split!r}")
        seed, count = parts[split]
        rng = np.random.default_rng(seed)
        labels = np.arange(count) % 2
        images = np.zeros((count, 20, 20, 1), np.uint8)
        for image, label, top in zip(images, labels, rng.integers(0, 12, count), strict=True):
            image[top : top + 8, 1 + 10 * label : 9 + 10 * label] = rng.integers(150, 256)
        return ArraySplit(images, labels)
