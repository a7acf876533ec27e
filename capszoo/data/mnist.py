"""MNIST: handwritten digits, 60,000 for training and 10,000 for testing, 28x28 grey."""

import dataclasses

from capszoo.config import require_at_least, require_at_most, section
from capszoo.data.augment import MAX_STRETCH, deform, place, shift
from capszoo.data.dataset import DataSet
from capszoo.data.sources import read_split
from capszoo.data.split import ArraySplit, Split

# Of padding and shifts, in pixels, and of evaluation images made from one: beyond, memory and patience end.
MAX_MARGIN, MAX_COPIES = 64, 10_000
LICENCE = "MNIST by LeCun, Cortes, Burges; commonly given as CC BY-SA 3.0"


@dataclasses.dataclass(frozen=True)
class MnistLike(DataSet):
    """A data set in MNIST's format, padded and shifted as the capsule papers do.

    where:
      validation: images cut from the training set for validation (see `read_split`); 0 trains on all 60,000.
      pad: pixels of zeros added on each side, at most 64.
      shift: training images are translated at random by up to this many pixels in each axis, at most 64.
      turn: training images are first turned at random by up to this many degrees, at most 180.
      stretch: before that, training images are stretched along rows and columns by factors of 1 - stretch to
        1 + stretch; at most 0.9.

    Source: Sabour et al. 2017, authors' code: grey levels / 255, shift 2, test images as they are.
    Differs from the paper: the authors train on all 60,000 images; here 5,000 are kept for choosing.
    Errors: `ValueError` for an option out of range.
    """

    validation: int = 5000
    pad: int = 0
    shift: int = 2
    turn: float = 0.0
    stretch: float = 0.0

    num_classes = 10
    light_on_dark = True

    def __post_init__(self):
        require_at_least(self, 0, "validation", "pad", "shift", "turn", "stretch")
        require_at_most(self, pad=MAX_MARGIN, shift=MAX_MARGIN, turn=180, stretch=MAX_STRETCH)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels), with the padding."""
        return (28 + 2 * self.pad, 28 + 2 * self.pad, 1)

    def open(self, split: str) -> Split:
        """The split "train", "validation" or "test". Errors: see `read_split`."""
        images, labels = read_split(self.section_name, split, self.validation)
        augment = self._augment if split == "train" else None
        return ArraySplit(place(images, self.pad) if self.pad else images, labels, augment=augment)

    def _augment(self, images, rng):
        if self.turn or self.stretch:
            images = deform(images, rng, self.turn, self.stretch)
        return shift(images, rng, self.shift) if self.shift else images


@section("data", "mnist")
@dataclasses.dataclass(frozen=True)
class Mnist(MnistLike):
    """MNIST; its options and preprocessing are those of `MnistLike`.

    `pad=6, shift=6` is the expanded MNIST on which models for affNIST are trained.
    Source: LeCun et al. 1998 for the data.
    """

    licence = LICENCE
    class_names = tuple("0123456789")
