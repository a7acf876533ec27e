"""MultiMNIST: two overlapping MNIST digits of different classes in one 36x36 image."""

import dataclasses

import numpy as np

from capszoo.config import require_at_least, require_at_most, section
from capszoo.data.augment import place, translate
from capszoo.data.dataset import DataSet
from capszoo.data.mnist import LICENCE, MAX_COPIES, MAX_MARGIN
from capszoo.data.sources import read_split
from capszoo.data.split import RenderedSplit, Split, to_unit

PAD = 4


@section("data", "multimnist")
@dataclasses.dataclass(frozen=True)
class MultiMnist(DataSet):
    """Pairs of MNIST digits, made when they are asked for.

    image = min(255, T(first) + T'(second)) / 255

    where:
      first: each digit of the split in turn; T, T' shift by whole pixels, uniform up to +-`shift` in each
        axis.
      second: uniform over the digits of the same split that are of another class.

    A batch has `images` [n, 36, 36, 1], `labels` [n, 2] (first, second) and `sources` [n, 2, 36, 36, 1], the
    two digits before they were merged, in the order of the labels. In training a digit gets a new partner
    each time it is used, so an epoch is one pair for each digit; in evaluation image i of N digits has the
    first digit i % N, and its partner and shifts are a pure function of (`seed`, i).

    where:
      validation: digits cut from the training set for validation.
      shift: reach of the shifts, in pixels; digits are padded by 4, so more than 4 can push empty margin off
        the frame.
      pairs_per_image: partners of each validation and test digit.
      seed: chooses the evaluation pairs.

    Source: Sabour et al. 2017, authors' code; shift 6 as in the command of its README.
    Differs from the paper: the text has a shift of 4. 1,000 stored partners of each digit (60 M training and
    10 M test pairs) are here fresh partners in training and `pairs_per_image` (1,000 gives the published
    count) in evaluation.
    Errors: `ValueError` for a negative option or fewer than one pair per image; from `open`, for a split without two
    classes.
    """

    validation: int = 5000
    shift: int = 6
    pairs_per_image: int = 1
    seed: int = 0

    num_classes = 10
    light_on_dark = True
    licence = LICENCE
    labels_per_image = 2
    class_names = tuple("0123456789")
    image_shape = (28 + 2 * PAD, 28 + 2 * PAD, 1)

    def __post_init__(self):
        require_at_least(self, 0, "validation", "shift", "seed")
        require_at_most(self, shift=MAX_MARGIN, pairs_per_image=MAX_COPIES)
        require_at_least(self, 1, "pairs_per_image")

    def open(self, split: str) -> Split:
        """The split "train", "validation" or "test". Errors: see `read_split`."""
        images, labels = read_split("mnist", split, self.validation)
        if len(np.unique(labels)) < 2:
            raise ValueError(
                f"pairs are of digits of two classes. Received: {len(images)} digit(s) in {split!r}, all of one class"
            )
        pairs = _Pairs(place(images, PAD), labels, self.shift)
        return RenderedSplit(
            length=len(images) * (1 if split == "train" else self.pairs_per_image),
            draws=pairs.DRAWS,
            seed=self.seed,
            render=pairs,
            arrays={"images": images, "labels": labels},
            recipe=f"multimnist {PAD} {self.shift}",
        )


class _Pairs:
    """Renders pairs; of the uniform numbers one chooses the partner and two shift each digit."""

    DRAWS = 5

    def __init__(self, images, labels, shift):
        self._images, self._labels, self._shift = images, labels, shift
        self._by_class = np.argsort(labels, kind="stable")
        self._counts = np.bincount(labels, minlength=MultiMnist.num_classes)
        self._starts = np.cumsum(self._counts) - self._counts

    def __call__(self, indices, uniform):
        first = indices % len(self._images)
        chosen = np.stack([first, self._partners(first, uniform[:, 0])], axis=1)  # [n, 2]
        offsets = np.floor(uniform[:, 1:] * (2 * self._shift + 1)).astype(np.int64) - self._shift
        rows, columns = offsets.reshape(-1, 2).T  # of first, second, first, ...
        digits = translate(self._images[chosen.ravel()], rows, columns)
        digits = digits.reshape(-1, 2, *MultiMnist.image_shape)
        merged = np.minimum(digits.sum(axis=1, dtype=np.uint16), 255)
        return {"images": to_unit(merged), "labels": self._labels[chosen], "sources": to_unit(digits)}

    def _partners(self, first, uniform):
        """Uniform over the digits sorted by class, with the block of the first digit's class left out."""
        label = self._labels[first]
        others = len(self._labels) - self._counts[label]
        position = (uniform * others).astype(np.int64)
        return self._by_class[position + np.where(position >= self._starts[label], self._counts[label], 0)]
