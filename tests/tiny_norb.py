"""A tiny smallNORB, whose pictures tell a stand-in for a model everything, and recipes of two tiny nets for it."""

import itertools

import numpy as np

INSTANCES = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}
VIEWS = (
    (0, 0),
    (2, 15),
    (2, 3),
    (8, 2),
    (5, 9),
    (3, 14),
)  # codes of (elevation, azimuth); the edges are among them
RECIPES = {
    "tiny_cnn": "model: {name: cnn, channels: [3, 4], hidden: 8}",
    "tiny_em": "model: {name: matrix_em, channels: 4, primary_types: 2, conv1_types: 2, conv2_types: 2}",
}
REST = """
data: {name: synthnorb, size: 24, crop: 18}
train: {epochs: 2, batch_size: 20}
"""


def read_pairs(name, split, size, folders):
    """Noisy pairs; the left picture is as bright as the category, 50 c, and the right one as the view, 40 v."""
    rng = np.random.default_rng(len(split))
    rows = list(itertools.product(range(5), INSTANCES[split], range(len(VIEWS))))
    images = rng.integers(0, 20, (len(rows), size, size, 2))
    for image, (category, _, view) in zip(images, rows, strict=True):
        image += 50 * category, 40 * view
    category, instance, view = np.array(rows).T
    elevation, azimuth = np.array(VIEWS)[view].T
    factors = {"category": category, "instance": instance, "elevation": elevation, "azimuth": azimuth}
    return images.astype(np.uint8), factors


class ReadsPixels:
    """A stand-in for a model: reads category and view from pictures that are not standardised, and errs where it shall.

    `errs(category, view)` gives for arrays where it is wrong.
    """

    def __init__(self, errs):
        self.errs = errs

    def predict_on_batch(self, images):
        left, right = np.moveaxis(images.mean(axis=(1, 2)) * 255, -1, 0)
        category, view = (left / 50).astype(int), (right / 40).astype(int)
        return {"scores": np.eye(5)[(category + self.errs(category, view)) % 5]}
