"""A tiny data set in MNIST's file format: each class is a bright bar at its own angle, so small nets learn it."""

import gzip

import numpy as np


def draw_bars(count, seed):
    """uint8 images [count, 28, 28] and labels 0..9 in turn."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(count) % 10).astype(np.uint8)
    y, x = np.mgrid[-14:14, -14:14] + 0.5
    angles = labels * np.pi / 10 + rng.normal(0, 0.03, count)
    across = x * np.sin(angles)[:, None, None] - y * np.cos(angles)[:, None, None]
    along = x * np.cos(angles)[:, None, None] + y * np.sin(angles)[:, None, None]
    bars = np.clip(2.5 - np.abs(across), 0, 1) * (np.abs(along) < 9)
    return (bars * rng.integers(150, 256, (count, 1, 1))).astype(np.uint8), labels


def write_idx(folder, prefix, images, labels):
    """The two gzipped idx files of one split, as MNIST is published."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
        (folder / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))


def write_mnist(folder, train=300, test=100):
    """A complete `mnist` folder inside `folder`, for CAPSZOO_DATA_DIR."""
    write_idx(folder / "mnist", "train", *draw_bars(train, 0))
    write_idx(folder / "mnist", "t10k", *draw_bars(test, 1))
    return folder


RECIPE = """\
# Expected: nothing
model: {name: dynamic, channels: 16, primary_types: 4}
data: {name: mnist, validation: 50}
train: {epochs: 1, batch_size: 50, checkpoint_steps: 3}
card:
  title: A tiny net
  routing: dynamic
  licence: Apache-2.0
  deviations: [tiny]
  protocols: {test_error: 0.0025}
"""

# Options of a small `StackedCapsuleAutoencoder`.
STACKED = {
    "objects": 3,
    "parts": 4,
    "template_size": 5,
    "channels": 6,
    "features": 2,
    "width": 8,
    "blocks": 1,
    "encoding": 8,
    "units": 8,
    "code": 4,
}

# Options of a small `ProbabilisticCapsNet`.
PROBABILISTIC = {
    "objects": 3,
    "parts": 4,
    "template_size": 5,
    "channels": 4,
    "units": 8,
    "heads": 2,
    "points": 3,
    "blocks": 1,
    "encoding": 5,
}
