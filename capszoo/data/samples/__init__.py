"""Pictures of our own that ship with the library, for trying a model without a data set."""

from pathlib import Path

import numpy as np

from capszoo.data.images import read_image


def digits():
    """Twenty handwritten digits as MNIST prepares them, each of 0 to 9 by two hands.

    Returns `(images, labels)`: float32 `[20, 28, 28, 1]` in [0, 1], white on black, and int64 `[20]`,
    ascending.
    Source: drawn by `capszoo/data/samples/draw_digits.py`. They are not MNIST's, and no number measured on them is
    MNIST's.
    """
    return _labelled("digits", (28, 28, 1))


def toys():
    """Five toys of synthnorb, one of each category, photographed as smallNORB's are.

    Returns `(images, labels)`: stereo pairs float32 `[5, 96, 96, 2]` in [0, 1], raw, so that `model.preprocess` comes
    before the model; and int64 `[5]`, ascending, in the order of smallNORB's classes.
    Source: rendered by `capszoo/data/samples/render_toys.py`, of the test split. They are not smallNORB's.
    """
    return _labelled("toys", (96, 96, 2))


def _labelled(folder, image_shape):
    """The pictures in a folder, and the classes with which their names begin."""
    paths = sorted(Path(__file__).with_name(folder).glob("*.png"))
    images = np.stack([read_image(path, image_shape) for path in paths])
    return images, np.array([int(path.name[0]) for path in paths], dtype=np.int64)
