"""Pictures of our own that ship with the library, for trying a model without a data set."""

from pathlib import Path

import numpy as np

from capszoo.images import read_image


def digits():
    """Twenty handwritten digits as MNIST prepares them, each of 0 to 9 by two hands.

    Returns `(images, labels)`: float32 `[20, 28, 28, 1]` in [0, 1], white on black, and int64 `[20]`,
    ascending.
    Source: drawn by `capszoo/samples/draw_digits.py`. They are not MNIST's, and no number measured on them is
    MNIST's.
    """
    paths = sorted(Path(__file__).with_name("digits").glob("*.png"))
    images = np.stack([read_image(path, (28, 28, 1)) for path in paths])
    return images, np.array([int(path.name[0]) for path in paths], dtype=np.int64)
