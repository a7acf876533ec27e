"""Tiny stand-ins for published data sets, in the published file formats."""

import gzip

import numpy as np
import pytest

from capszoo.data import sources


def _draw_digits(count, seed):
    rng = np.random.default_rng(seed)
    images = np.zeros((count, 28, 28), np.uint8)
    for image in images:
        top, left = rng.integers(4, 14, size=2)
        height, width = rng.integers(3, 11, size=2)
        image[top : top + height, left : left + width] = rng.integers(1, 256, size=(height, width))
    return images, (np.arange(count) % 10).astype(np.uint8)


def _write_idx(folder, prefix, images, labels):
    folder.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
        (folder / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))


@pytest.fixture
def draw_digits():
    """`draw_digits(count, seed)`: grey boxes inside the middle 20x20 of 28x28 images; labels 0..9 in turn."""
    return _draw_digits


@pytest.fixture
def write_idx():
    """`write_idx(folder, prefix, images, labels)`: the two gzipped idx files of one split."""
    return _write_idx


@pytest.fixture
def image_set():
    """`image_set(images)`: the images as a set, for comparing sets of images."""
    return lambda images: {image.tobytes() for image in images}


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A machine without data sets: an empty `CAPSZOO_DATA_DIR`, which the fixture returns."""
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CAPSZOO_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def tiny_data(no_data):
    """MNIST and Fashion-MNIST of 60 + 40 drawn images, as idx files in the folder that it returns."""
    for seed, name in enumerate(("mnist", "fashion_mnist")):
        _write_idx(no_data / name, "train", *_draw_digits(60, seed))
        _write_idx(no_data / name, "t10k", *_draw_digits(40, 10 + seed))
    return no_data


@pytest.fixture
def real_mnist():
    """Real MNIST where it can be found, else a skipped test that says where it was looked for."""
    try:
        sources.read_arrays("mnist", "train")
        sources.read_arrays("mnist", "test")
    except sources.DataNotFound as error:
        pytest.skip(str(error))
