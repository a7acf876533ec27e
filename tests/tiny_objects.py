"""Tiny ETH-80 and COIL-20: noise, brighter for every category, seen from a few of the real viewpoints."""

import itertools

import numpy as np

INSTANCES = {"train": range(5), "test": range(5, 10)}
# (elevation, azimuth) in degrees.
VIEWS = ((90, 0), (45, 0), (45, 90), (24, 27), (0, 338), (0, 180))


def read_photographs(split, size, colour, folders):
    """Photographs of 8 categories, 5 objects each."""
    rows = np.array(list(itertools.product(range(8), INSTANCES[split], range(len(VIEWS)))))
    category, instance, view = rows.T
    elevation, azimuth = np.array(VIEWS)[view].T
    factors = {"category": category, "instance": instance, "elevation": elevation, "azimuth": azimuth}
    return _noise(25 * category, size, 3 if colour else 1, seed=len(split)), factors


def read_views(size, folders):
    """Every view of three objects."""
    labels, azimuth = np.array(list(itertools.product(range(3), range(0, 360, 5)))).T
    return _noise(70 * labels, size, 1, seed=0), labels, azimuth


def _noise(brightness, size, channels, seed):
    noise = np.random.default_rng(seed).integers(0, 70, (len(brightness), size, size, channels))
    return (noise + brightness[:, None, None, None]).astype(np.uint8)
