"""Fashion-MNIST: articles of clothing in MNIST's format, 60,000 for training and 10,000 for testing."""

import dataclasses

from capszoo.config import section
from capszoo.data.dataset import DataSet
from capszoo.data.mnist import MAX_MARGIN, open_shifted, require_at_most, require_natural
from capszoo.data.split import Split


@section("data", "fashion_mnist")
@dataclasses.dataclass(frozen=True)
class FashionMnist(DataSet):
    """Fashion-MNIST, padded and shifted as `Mnist` is.

    where:
      validation: images cut from the training set for validation (see `read_split`); 0 trains on all 60,000.
      pad: pixels of zeros added on each side.
      shift: training images are translated at random by up to this many pixels in each axis.

    Source: Xiao, Rasul, Vollgraf 2017 for the data; the preprocessing is MNIST's.
    Errors: `ValueError` for a negative option.
    """

    validation: int = 5000
    pad: int = 0
    shift: int = 2

    num_classes = 10
    licence = "Fashion-MNIST by Zalando SE; MIT"
    class_names = (
        *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )

    def __post_init__(self):
        require_natural(self, "validation", "pad", "shift")
        require_at_most(self, pad=MAX_MARGIN, shift=MAX_MARGIN)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels), with the padding."""
        return (28 + 2 * self.pad, 28 + 2 * self.pad, 1)

    def open(self, split: str) -> Split:
        """The split "train", "validation" or "test". Errors: see `read_split`."""
        return open_shifted("fashion_mnist", split, self)
