"""Data sets on the disk: damaged idx files are an error that names the file."""

import gzip

import numpy as np
import pytest
from attacks.damage import damaged
from tiny import draw_bars, write_idx, write_mnist

from capszoo.data import sources
from capszoo.data.sources import DataNotFound

# By name only: many inputs take minutes.
pytestmark = [pytest.mark.attack, pytest.mark.slow]


def test_damaged_idx_files(attacks, tmp_path, monkeypatch):
    write_mnist(tmp_path, train=20, test=10)
    monkeypatch.setenv("CAPSZOO_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def read():
        sources._read.cache_clear()
        return sources.read_arrays("mnist", "train")

    def whole(arrays):
        return arrays["image"].shape[1:] == (28, 28, 1) and arrays["label"].max() < 10

    for path in sorted((tmp_path / "mnist").glob("train*")):
        contents = path.read_bytes()
        unpacked = gzip.decompress(contents)
        copies = list(damaged(contents, attacks.rng, 60))
        copies += [
            (f"inside {what}", gzip.compress(copy)) for what, copy in damaged(unpacked, attacks.rng, 60)
        ]
        copies += [(f"inside head {n}", gzip.compress(unpacked[:n])) for n in range(0, 17)]
        for what, copy in copies:
            path.write_bytes(copy)
            attacks(f"{path.name} {what}", read, ValueError, DataNotFound, harmless=whole)
        path.write_bytes(contents)
    images, labels = draw_bars(20, 0)
    for what, arrays in {
        "labels of 10": (images, np.full(20, 10, "uint8")),
        "images of 27": (images[:, 1:], labels),
        "fewer labels": (images, labels[:-1]),
        "no image": (images[:0], labels[:0]),
    }.items():
        write_idx(tmp_path / "mnist", "train", *arrays)
        attacks(what, read, ValueError, harmless=lambda read, what=what: what == "no image")
    sources._read.cache_clear()
