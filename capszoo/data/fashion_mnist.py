"""Fashion-MNIST: articles of clothing in MNIST's format, 60,000 for training and 10,000 for testing."""

import dataclasses

from capszoo.config import section
from capszoo.data.augment import mirror
from capszoo.data.mnist import MnistLike


@section("data", "fashion_mnist")
@dataclasses.dataclass(frozen=True)
class FashionMnist(MnistLike):
    """Fashion-MNIST; its options and preprocessing are those of `MnistLike`, and one more.

    where:
      mirror: left and right of half the training images are exchanged, before they are turned, stretched and shifted.

    Source: Xiao, Rasul, Vollgraf 2017 for the data; the preprocessing is MNIST's.
    """

    mirror: bool = False

    licence = "Fashion-MNIST by Zalando SE; MIT"
    class_names = (
        *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )

    def _augment(self, images, rng):
        return super()._augment(mirror(images, rng) if self.mirror else images, rng)
