"""Rotated MNIST: each digit turned by its own random angle."""

import dataclasses

import numpy as np

from capszoo.config import require_at_least, section
from capszoo.data.augment import rotate
from capszoo.data.dataset import DataSet
from capszoo.data.mnist import LICENCE
from capszoo.data.sources import read_split
from capszoo.data.split import RenderedSplit, Split, to_unit


@section("data", "rotated_mnist")
@dataclasses.dataclass(frozen=True)
class RotatedMnist(DataSet):
    """MNIST turned counter-clockwise by angles uniform in [-`max_angle`, `max_angle`) degrees, bilinearly.

    Training images get a new angle each time; a validation or test image has the same angle for ever, a pure
    function of (`seed`, index). A batch also has `angle`, float32 [n], in degrees.

    where:
      validation: images cut from the training set for validation (see `read_split`).
      max_angle: degrees, in [0, 180]; seed 000 reports 0, 45, 90, 135 and 180.
      seed: chooses the evaluation angles.

    Source: the rotated test sets of "Probabilistic generative capsules"; that the angle is uniform per image
    is our reading, the paper does not say.
    Errors: `ValueError` for an option out of range.
    """

    validation: int = 5000
    max_angle: float = 180.0
    seed: int = 0

    num_classes = 10
    light_on_dark = True
    licence = LICENCE
    class_names = tuple("0123456789")
    image_shape = (28, 28, 1)

    def __post_init__(self):
        require_at_least(self, 0, "validation", "seed")
        if not 0 <= self.max_angle <= 180:
            raise ValueError(f"max_angle must be in [0, 180] degrees. Received: {self.max_angle}")

    def open(self, split: str) -> Split:
        """The split "train", "validation" or "test". Errors: see `read_split`."""
        images, labels = read_split("mnist", split, self.validation)

        def render(indices, uniform):
            angle = (2 * uniform[:, 0] - 1) * self.max_angle
            turned = rotate(images[indices], angle)
            return {"images": to_unit(turned), "labels": labels[indices], "angle": angle.astype(np.float32)}

        arrays = {"images": images, "labels": labels}
        recipe = f"rotated_mnist {self.max_angle}"
        return RenderedSplit(len(images), 1, self.seed, render, arrays, recipe)
