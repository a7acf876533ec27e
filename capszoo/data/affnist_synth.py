"""affnist_synth: our own data set in the manner of affNIST, made from MNIST.

Results on it are not affNIST results.
"""

import dataclasses

import numpy as np

from capszoo.config import require_at_least, require_at_most, section
from capszoo.data.augment import affine, rotations
from capszoo.data.dataset import DataSet
from capszoo.data.mnist import LICENCE, MAX_COPIES
from capszoo.data.sources import read_split
from capszoo.data.split import RenderedSplit, Split, to_unit

CANVAS = 40
MAX_ROTATION = 20.0  # degrees
MAX_SHEAR = 0.2
EXPANSION = (0.8, 1.2)
DRAWS = 6


@section("data", "affnist_synth")
@dataclasses.dataclass(frozen=True)
class AffnistSynth(DataSet):
    """MNIST digits under random affine maps on a 40x40 canvas.

    image(A p + t) = digit(p), bilinear, with A = R(rotation) [[1, 0], [shear, 1]] diag(vertical, horizontal)

    where:
      p: position (row, column) from the middle of the 28x28 digit; A p + t likewise on the canvas.
      rotation: uniform in +-20 degrees, counter-clockwise; shear: uniform in +-0.2.
      vertical, horizontal: expansion, uniform in 0.8..1.2 each.
      t: uniform in each axis over the translations that keep all ink on the canvas.

    Training images get a new map each time; validation or test image i of N digits is digit i % N, and its
    map is a pure function of (`seed`, i). A batch also has `transform`, float32 [n, 2, 3], the map [A | t].

    where:
      validation: digits cut from the training set for validation; 10,000 as in affNIST.
      transforms: maps of each validation and test digit; affNIST has 32.
      seed: chooses the evaluation maps.

    Differs from affNIST: the ranges are those we know affNIST by, not verified against its authors' code; the
    order of shear and expansion, and the interpolation, are our choice.
    Errors: `ValueError` for an option out of range.
    """

    validation: int = 10000
    transforms: int = 1
    seed: int = 0

    num_classes = 10
    light_on_dark = True
    licence = LICENCE
    class_names = tuple("0123456789")
    image_shape = (CANVAS, CANVAS, 1)

    def __post_init__(self):
        require_at_least(self, 0, "validation", "seed")
        require_at_most(self, transforms=MAX_COPIES)
        require_at_least(self, 1, "transforms")

    def open(self, split: str) -> Split:
        """The split "train", "validation" or "test". Errors: see `read_split`."""
        images, labels = read_split("mnist", split, self.validation)

        def render(indices, uniform):
            digit = indices % len(images)
            maps = draw_maps(images[digit], uniform)
            moved = affine(images[digit], maps, (CANVAS, CANVAS))
            return {"images": to_unit(moved), "labels": labels[digit], "transform": maps.astype(np.float32)}

        length = len(images) * (1 if split == "train" else self.transforms)
        arrays = {"images": images, "labels": labels}
        recipe = f"affnist_synth {CANVAS} {MAX_ROTATION} {MAX_SHEAR} {EXPANSION}"
        return RenderedSplit(length, DRAWS, self.seed, render, arrays, recipe)


def draw_maps(images: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """The maps [A | t], [n, 2, 3], that uniform numbers [n, 6] in [0, 1) choose for images [n, H, W, 1]."""
    signed = 2 * uniform - 1
    linear = rotations(MAX_ROTATION * signed[:, 0])
    shear = np.tile(np.eye(2), (len(images), 1, 1))
    shear[:, 1, 0] = MAX_SHEAR * signed[:, 1]
    low, high = EXPANSION
    linear = linear @ shear * (low + (high - low) * uniform[:, None, 2:4])
    start, end = _allowed(images, linear)
    # Ink that cannot fit is centred: the interval is then empty and its middle is the best there is.
    offset = (start + end) / 2 + signed[:, 4:] / 2 * np.maximum(end - start, 0)
    return np.concatenate([linear, offset[..., None]], axis=-1)


def _allowed(images, linear):
    """The least and greatest translation [n, 2] that keep the ink, as sampling spreads it, on the canvas."""
    height, width = images.shape[1:3]
    row = (np.arange(height) - (height - 1) / 2)[None, None, :, None]
    column = (np.arange(width) - (width - 1) / 2)[None, None, None, :]
    position = linear[:, :, 0, None, None] * row + linear[:, :, 1, None, None] * column  # [n, axis, H, W]
    ink = images[:, None, :, :, 0] > 0
    spread = np.abs(linear).sum(axis=-1)  # a pixel is a tent that reaches 1 pixel in each axis of the digit
    least = np.where(ink, position, np.inf).min(axis=(2, 3)) - spread
    greatest = np.where(ink, position, -np.inf).max(axis=(2, 3)) + spread
    edge = (CANVAS + 1) / 2  # the first position beyond the outermost pixels
    return -edge - least, edge - greatest
