"""affNIST: MNIST digits under random affine maps on a 40x40 canvas, from its author's .mat files."""

import dataclasses
from typing import Literal

import numpy as np

from capszoo.config import section
from capszoo.data.dataset import DataSet
from capszoo.data.mnist import LICENCE
from capszoo.data.sources import DataNotFound, data_folder
from capszoo.data.split import ArraySplit, Split
from capszoo.extras import extra

FILES = {"train": "training", "validation": "validation", "test": "test"}
FOLDERS = {"transformed": "transformed", "centred": "just_centered"}
DIGITS = {"train": 50_000, "validation": 10_000, "test": 10_000}
TRANSFORMS = {"transformed": 32, "centred": 1}


@section("data", "affnist")
@dataclasses.dataclass(frozen=True)
class Affnist(DataSet):
    """affNIST as published, in the order of its files, without augmentation.

    Below `CAPSZOO_DATA_DIR`/affnist/, `transformed/` holds `test.mat` or the folder `test_batches/` with
    1.mat .. 32.mat (likewise `training` and `validation`), and `just_centered/` holds `test.mat`; the
    transformed files may also lie in affnist/ itself. The training images take 2.6 GB of memory, the others
    0.5 GB.

    A batch also has `digit`, int64 [n]: which digit of the split an image was made from, in the order of the
    centred file; -1 where the order of the rows does not tell (see `row_order`).

    where:
      version: "transformed" (32 images of each digit) or "centred" (the digits as they are, on the same
        canvas).

    Source: Tieleman 2013, affNIST data page; rows of `image` are pixels in C order, as four public loaders
    read them.
    Errors: see `open`.
    """

    version: Literal["transformed", "centred"] = "transformed"

    num_classes = 10
    light_on_dark = True
    licence = f"affNIST by Tijmen Tieleman, made from {LICENCE}"
    class_names = tuple("0123456789")
    image_shape = (40, 40, 1)

    def open(self, split: str) -> Split:
        """The split "train", "validation" or "test".

        Errors: `DataNotFound`; `ValueError` for an unknown split and for files that cannot be read or are not
        complete.
        """
        if split not in FILES:
            raise ValueError(f"a split is one of {', '.join(FILES)}. Received: {split!r}")
        parts = [_read_mat(path) for path in self._paths(split)]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        expected = DIGITS[split] * TRANSFORMS[self.version]
        if len(images) != expected:
            received = f"Received: {len(images)}"
            raise ValueError(f"affNIST ({self.version}, {split}): expected {expected} images. {received}")
        return ArraySplit(images, labels, {"digit": _digits(labels, DIGITS[split])})

    def _paths(self, split):
        name, folder = FILES[split], data_folder()
        if folder is None:
            looked = "nowhere, as CAPSZOO_DATA_DIR is not set"
        else:
            homes = [folder / "affnist" / FOLDERS[self.version]]
            homes += [folder / "affnist"] if self.version == "transformed" else []
            for home in homes:
                if (home / f"{name}.mat").is_file():
                    return [home / f"{name}.mat"]
                # A download made twice is called "1 (1).mat".
                batches = [p for p in (home / f"{name}_batches").glob("*.mat") if p.stem.isdecimal()]
                if batches:
                    return sorted(batches, key=lambda path: int(path.stem))
            looked = " and ".join(f"{home / name}.mat, {home / name}_batches/1.mat ..." for home in homes)
        raise DataNotFound(
            f"affNIST ({self.version}, {split}) was not found. Looked for: {looked}.\n"
            "Its author offers it at https://www.cs.toronto.edu/~tijmen/affNIST/; unpack it there and set "
            "CAPSZOO_DATA_DIR to the folder that holds affnist/."
        )


def row_order(labels: np.ndarray, digits: int) -> str:
    """How the rows of an affNIST file of `digits` digits are arranged, known from their labels.

    Returns "transform-major" if all digits follow each other once and then again, "digit-major" if all images
    of one digit follow each other, "unknown" if neither fits. The rule needs no MNIST: a block of rows
    repeats its labels only in the first case, and keeps one label only in the second.
    """
    labels = np.asarray(labels)
    if len(labels) % digits:
        return "unknown"
    transforms = len(labels) // digits
    if np.all(labels.reshape(transforms, digits) == labels[:digits]):
        return "transform-major"
    if np.all(labels.reshape(digits, transforms) == labels[::transforms, None]):
        return "digit-major"
    return "unknown"


def _digits(labels, digits):
    row = np.arange(len(labels))
    order = row_order(labels, digits)
    if order == "unknown":
        return np.full(len(labels), -1)
    return row % digits if order == "transform-major" else row // (len(labels) // digits)


def _read_mat(path):
    """Images uint8 [N, 40, 40, 1] and labels [N] of one file."""
    with extra("train"):
        from scipy.io import loadmat

    try:
        data = loadmat(path)["affNISTdata"]
        # A struct with, among others, image [1600, N], one case per column, and label_int [1, N].
        pixels, labels = data["image"][0, 0], data["label_int"][0, 0]
    except Exception as error:
        raise ValueError(f"{path}: not a readable affNIST file: {error!r}") from error
    if pixels.dtype != np.uint8 or pixels.shape != (1600, labels.size):
        received = f"{pixels.dtype} {pixels.shape} with {labels.size} labels"
        raise ValueError(f"{path}: expected image uint8 [1600, N] and N labels. Received: {received}")
    return pixels.T.reshape(-1, 40, 40, 1), labels.ravel().astype(np.int64)
