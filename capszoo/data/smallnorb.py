"""smallNORB and its rendered twin synthnorb: stereo pairs of toys, with the preprocessing of the capsule papers."""

import dataclasses
import functools
from pathlib import Path
from typing import Literal

import numpy as np

from capszoo.config import section
from capszoo.data.cropping import resize
from capszoo.data.objects import ObjectImages
from capszoo.data.prepared import read_prepared
from capszoo.data.sources import tfds_folders

CLASS_NAMES = ("four-legged animals", "human figures", "airplanes", "trucks", "cars")
PROVIDED_BY = {
    "smallnorb": """python -c "import tensorflow_datasets as tfds; tfds.load('smallnorb')\"""",
    "synthnorb": "python -m capszoo.data.synthnorb",
}

# The novel-viewpoint protocols of Hinton et al. 2018, Table 2, in TFDS's codes: azimuth / 20 degrees and
# (elevation - 30 degrees) / 5. smallNORB's own files count azimuths 0, 2 ... 34 instead.
VIEWS = {
    "all": {},
    "familiar azimuth": {"azimuth": (15, 16, 17, 0, 1, 2)},  # 300, 320, 340, 0, 20, 40 degrees
    "novel azimuth": {"azimuth": tuple(range(3, 15))},  # 60 to 280 degrees
    "familiar elevation": {"elevation": (0, 1, 2)},  # 30, 35, 40 degrees
    "novel elevation": {"elevation": tuple(range(3, 9))},  # 45 to 70 degrees
}


@section("data", "smallnorb")
@dataclasses.dataclass(frozen=True)
class Smallnorb(ObjectImages):
    """smallNORB as the authors' EM-routing code prepares it, but for the order: resize, crop, standardise, jitter.

    A batch has the left and the right image as two channels, the category as `labels`, and the codes of `instance`,
    `elevation`, `azimuth` and `lighting` (int64 [n]; those of TFDS).

    where:
      size to stretch: see `CroppedImages`; the files have 96 x 96 pixels.
      validation_instance: the training toy of each category (4, 6, 7, 8 or 9) that is kept for validation, 4,860
        pairs; None trains on all 24,300 and has no validation split.
      views: which viewpoints there are, in every split: a key of `viewpoints`.

    Source: authors' code of Hinton et al. 2018 (matrix capsules with EM routing), and Table 2 for `views`.
    Differs from the paper: see `CroppedImages`. The authors train on all toys; here one of five is kept for choosing,
    unless `validation_instance` is None.
    Errors: `ValueError` for an option out of range; `DataNotFound` from `open`.
    """

    validation_instance: Literal[4, 6, 7, 8, 9] | None = 9

    num_classes = len(CLASS_NAMES)
    licence = "smallNORB by LeCun, Huang, Bottou; for research purposes, not to be sold"
    class_names = CLASS_NAMES
    raw_shape = (96, 96, 2)
    train_instances = (4, 6, 7, 8, 9)
    viewpoints = VIEWS

    def read(self, split: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """See `ObjectImages`."""
        return read_pairs(self.section_name, split, self.size, tuple(tfds_folders()))


@section("data", "synthnorb")
@dataclasses.dataclass(frozen=True)
class Synthnorb(Smallnorb):
    """synthnorb (see `capszoo.data.synthnorb`) with the options of `Smallnorb`. It is not smallNORB."""

    licence = "rendered by capszoo; Apache-2.0"
    benchmark = "smallnorb"


@functools.lru_cache(maxsize=4)
def read_pairs(
    name: str, split: str, size: int, folders: tuple[Path, ...]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Resized pairs uint8 [N, size, size, 2] and the codes of their factors, from a copy prepared by TFDS.

    The order is that of (category, instance, elevation, azimuth, lighting). Images are resized as they are read: all
    24,300 pairs of 96 x 96 would take 448 MB.
    Errors: `DataNotFound` where none of `folders` has a copy; `ValueError`, naming it, for one that is damaged.
    """
    labels = ("label_category", "instance", "label_elevation", "label_azimuth", "label_lighting")

    def convert(batch):
        pairs = np.concatenate([batch["image"], batch["image2"]], -1)
        return {"image": resize(pairs, size), **{label: batch[label] for label in labels}}

    arrays = read_prepared(name, split, folders, convert, PROVIDED_BY[name])
    order = np.lexsort([arrays[label] for label in reversed(labels)])
    return arrays["image"][order], {label.removeprefix("label_"): arrays[label][order] for label in labels}
