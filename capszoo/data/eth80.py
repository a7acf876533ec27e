"""ETH-80: photographs of real objects of 8 categories, 10 of each, seen from 41 viewpoints of the upper hemisphere."""

import dataclasses
import functools
from pathlib import Path
from typing import Literal

import numpy as np

from capszoo.config import section
from capszoo.data.cropping import resize
from capszoo.data.images import LUMA
from capszoo.data.objects import ObjectImages
from capszoo.data.prepared import read_prepared
from capszoo.data.sources import tfds_folders

CLASS_NAMES = ("apple", "car", "cow", "cup", "dog", "horse", "pear", "tomato")

# In degrees. As in smallNORB's protocols, about a third of the azimuths lies around zero, and low elevations train.
VIEWS = {
    "all": {},
    "familiar azimuth": {"azimuth": (0, 22, 27, 45, 315, 333, 338)},
    "novel azimuth": {
        "azimuth": (63, 68, 90, 112, 117, 135, 153, 158, 180, 202, 207, 225, 243, 248, 270, 292, 297)
    },
    "familiar elevation": {"elevation": (0, 22, 24)},
    "novel elevation": {"elevation": (45, 55, 68, 90)},
}


@section("data", "eth80")
@dataclasses.dataclass(frozen=True)
class Eth80(ObjectImages):
    """ETH-80 with smallNORB's preprocessing: 1,640 photographs of training objects and 1,640 of other ones.

    A batch has the photographs, the category as `labels`, and `instance`, `elevation` and `azimuth` (int64 [n]; the
    latter two in degrees, the elevation 90 from straight above).

    where:
      size to stretch: see `CroppedImages`; the files have 96 x 96 pixels.
      validation_instance: the training object of each category (0 to 4) that is kept for validation, 328 photographs;
        None trains on all 1,640 and has no validation split.
      views: which viewpoints there are, in every split: a key of `viewpoints`. Of the 41 viewpoints 13 have a familiar
        azimuth (the one from straight above counts as azimuth 0), and 28 a familiar elevation.
      colour: three channels, or one of their luma.

    Source: B. Leibe, B. Schiele 2003, "Analyzing Appearance and Contour Based Methods for Object Categorization".
    Differs from the paper: it leaves one object out at a time, trains on all others and averages over 80 trainings;
    here objects 0 to 4 of each category train and 5 to 9 test, as in smallNORB. Photographs of 256 x 256 pixels were
    reduced to 96 x 96 by averaging. Their backgrounds stay.
    Errors: `ValueError` for an option out of range; `DataNotFound` from `open`.
    """

    validation_instance: Literal[0, 1, 2, 3, 4] | None = 4
    colour: bool = True

    num_classes = len(CLASS_NAMES)
    licence = "ETH-80 by Leibe and Schiele; published for research, no licence is given"
    class_names = CLASS_NAMES
    train_instances = (0, 1, 2, 3, 4)
    viewpoints = VIEWS

    @property
    def raw_shape(self) -> tuple[int, int, int]:
        return (96, 96, 3 if self.colour else 1)

    def read(self, split: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """See `ObjectImages`."""
        return read_photographs(split, self.size, self.colour, tuple(tfds_folders()))


@functools.lru_cache(maxsize=4)
def read_photographs(
    split: str, size: int, colour: bool, folders: tuple[Path, ...]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Resized photographs uint8 [N, size, size, 3 or 1] and their factors, in the order of these.

    Errors: `DataNotFound` where none of `folders` has a prepared copy; `ValueError`, naming it, for a damaged one.
    """

    def convert(batch):
        images = batch["image"] if colour else (batch["image"] @ LUMA).round().astype(np.uint8)[..., None]
        return {
            "image": resize(images, size),
            "category": batch["label"],
            "instance": batch["instance"],
            "elevation": 90 - batch["polar"],
            "azimuth": batch["azimuth"],
        }

    provided_by = (
        "a copy with the features image, label, instance, polar and azimuth; TFDS has no builder for it"
    )
    factors = read_prepared("eth80", split, folders, convert, provided_by)
    images = factors.pop("image")
    order = np.lexsort(list(factors.values())[::-1])
    return images[order], {name: codes[order] for name, codes in factors.items()}
