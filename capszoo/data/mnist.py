"""MNIST: handwritten digits, 60,000 for training and 10,000 for testing, 28x28 grey."""

import dataclasses
import functools

from capszoo.config import section
from capszoo.data.augment import place, shift
from capszoo.data.dataset import DataSet
from capszoo.data.sources import read_split
from capszoo.data.split import ArraySplit, Split

# Of padding and shifts, in pixels, and of evaluation images made from one: beyond, memory and patience end.
MAX_MARGIN, MAX_COPIES = 64, 10_000
LICENCE = "MNIST by LeCun, Cortes, Burges; commonly given as CC BY-SA 3.0"


@section("data", "mnist")
@dataclasses.dataclass(frozen=True)
class Mnist(DataSet):
    """MNIST, padded and shifted as the capsule papers do.

    where:
      validation: images cut from the training set for validation (see `read_split`); 0 trains on all 60,000.
      pad: pixels of zeros added on each side.
      shift: training images are translated at random by up to this many pixels in each axis.

    `pad=6, shift=6` is the expanded MNIST on which models for affNIST are trained.
    Source: Sabour et al. 2017, authors' code: grey levels / 255, shift 2, test images as they are.
    Differs from the paper: the authors train on all 60,000 images; here 5,000 are kept for choosing.
    Errors: `ValueError` for a negative option.
    """

    validation: int = 5000
    pad: int = 0
    shift: int = 2

    num_classes = 10
    licence = LICENCE
    class_names = tuple("0123456789")

    def __post_init__(self):
        require_natural(self, "validation", "pad", "shift")
        require_at_most(self, pad=MAX_MARGIN, shift=MAX_MARGIN)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels), with the padding."""
        return (28 + 2 * self.pad, 28 + 2 * self.pad, 1)

    def open(self, split: str) -> Split:
        """The split "train", "validation" or "test". Errors: see `read_split`."""
        return open_shifted("mnist", split, self)


def open_shifted(name: str, split: str, options) -> ArraySplit:
    """A split of the MNIST-like data set `name` with the `validation`, `pad` and `shift` of `options`."""
    images, labels = read_split(name, split, options.validation)
    augment = functools.partial(shift, pixels=options.shift) if options.shift and split == "train" else None
    return ArraySplit(place(images, options.pad) if options.pad else images, labels, augment=augment)


def require_natural(options, *names: str):
    """Errors: `ValueError` naming the first of the fields `names` of `options` that is negative."""
    for name in names:
        if getattr(options, name) < 0:
            raise ValueError(f"{name} must be at least 0. Received: {getattr(options, name)}")


def require_at_most(options, **limits: int):
    """Errors: `ValueError` naming the first field of `options` that is above its limit: memory would not hold it."""
    for name, most in limits.items():
        if getattr(options, name) > most:
            raise ValueError(f"{name} must be at most {most:,}. Received: {getattr(options, name):,}")
