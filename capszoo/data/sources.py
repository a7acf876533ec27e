"""Where the arrays of a published data set come from: the user's disk, never the network.

Two routes lead to the same arrays: the copies that TensorFlow Datasets prepares, which need TensorFlow, and
the original idx files, which need NumPy alone. Their orders differ, so both are put into one canonical order:
ascending by SHA-256 of the image's bytes, equal images by label. It is as good as a random order, depends on
nothing but the images, and puts equal images side by side.
"""

import functools
import gzip
import hashlib
import importlib.util
import math
import os
import re
import sys
import zlib
from pathlib import Path

import numpy as np

from capszoo.extras import extra

# What MNIST and the data sets made after it have in common.
IDX_SIDES, IDX_CLASSES = (28, 28), 10
IDX_PREFIX = {"train": "train", "test": "t10k"}


class DataNotFound(FileNotFoundError):
    """A data set is in none of the places where it is looked for; says where, and how to provide it."""


def read_arrays(name: str, split: str) -> dict[str, np.ndarray]:
    """The arrays of a published split, in canonical order, read once per process and not writeable.

    where:
      name: the data set's name in TensorFlow Datasets, which is also its folder below `CAPSZOO_DATA_DIR`.
      split: "train" or "test", as published.
    Returns one array [N, ...] per feature: `image` uint8 [N, H, W, C], `label` int64 [N], and any others
    there are.

    Errors: `DataNotFound`; `ValueError` for a file that is there but cannot be read whole.
    """
    if split not in IDX_PREFIX:
        raise ValueError(f"a published split is one of {', '.join(IDX_PREFIX)}. Received: {split!r}")
    return dict(_read(name, split, tuple(tfds_folders()), data_folder(), tuple(_routes())))


def read_split(name: str, split: str, validation: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [N, H, W, C] and labels int64 [N] of "train", "validation" or "test".

    The first `validation` images of the training set in canonical order are the validation split, the others
    the training split: a random choice, the same for everybody and not balanced over the classes. The test
    set is the published one, which no training looks at.

    Errors: `ValueError` for an unknown split or a `validation` that leaves one of the two empty; see
    `read_arrays`.
    """
    if split not in ("train", "validation", "test"):
        raise ValueError(f"a split is one of train, validation, test. Received: {split!r}")
    arrays = read_arrays(name, "test" if split == "test" else "train")
    images, labels = arrays["image"], arrays["label"]
    if split == "test":
        return images, labels
    if not 0 <= validation < len(images) or (split == "validation" and validation == 0):
        expected = f"validation must leave images in {split!r}, of {len(images)}"
        raise ValueError(f"{expected}. Received: {validation}")
    part = slice(None, validation) if split == "validation" else slice(validation, None)
    return images[part], labels[part]


def data_folder() -> Path | None:
    """The folder that `CAPSZOO_DATA_DIR` names, if it is set."""
    folder = os.environ.get("CAPSZOO_DATA_DIR")
    return Path(folder).expanduser() if folder else None


def tfds_folders() -> list[Path]:
    """The folders in which copies prepared by TensorFlow Datasets are looked for, in that order."""
    folders = [Path(os.environ["TFDS_DATA_DIR"]).expanduser()] if os.environ.get("TFDS_DATA_DIR") else []
    if data_folder():
        folders += [data_folder(), data_folder() / "tfds"]
    # Not of `Path`, which raises an error where the user has no home.
    return [*folders, Path(os.path.expanduser("~/tensorflow_datasets"))]


def newest_version(name, folders):
    """Where the newest version of a data set lies in the first of `folders` with a prepared copy; None without one."""
    for folder in folders:
        # TFDS writes into a folder `incomplete...` first, and users rename copies.
        found = [path.parent for path in (folder / name).glob("*/dataset_info.json")]
        found = [path for path in found if re.fullmatch(r"\d+(\.\d+)*", path.name)]
        if found:
            return max(found, key=lambda path: tuple(map(int, path.name.split("."))))
    return None


def _routes():
    """Which routes to try, in that order."""
    if not all(importlib.util.find_spec(module) for module in ("tensorflow", "tensorflow_datasets")):
        return ["idx"]
    # TensorFlow need not be imported where another backend does the work.
    return ["tfds", "idx"] if _tensorflow_is_backend() else ["idx", "tfds"]


def _tensorflow_is_backend():
    keras = sys.modules.get("keras")
    return (
        keras.config.backend() if keras else os.environ.get("KERAS_BACKEND", "tensorflow")
    ) == "tensorflow"


def tensorflow_datasets():
    """TensorFlow Datasets; TensorFlow leaves a GPU alone that another backend computes on, and its memory."""
    with extra("tensorflow,train"):
        import tensorflow as tf
        import tensorflow_datasets as tfds

    if not _tensorflow_is_backend():
        tf.config.set_visible_devices([], "GPU")
    return tfds


@functools.cache
def _read(name, split, prepared, data, routes):
    for route in routes:
        arrays = _from_tfds(name, split, prepared) if route == "tfds" else _from_idx(name, split, data)
        if arrays is not None:
            order = canonical_order(arrays["image"], arrays.get("label"))
            arrays = {key: np.ascontiguousarray(array[order]) for key, array in arrays.items()}
            for array in arrays.values():
                array.setflags(write=False)
            return arrays
    raise DataNotFound(_not_found(name, split, prepared, data, routes))


def canonical_order(images: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
    """The permutation that sorts by the first 64 bits of each image's SHA-256, then by label."""
    digests = b"".join(hashlib.sha256(image.tobytes()).digest()[:8] for image in images)
    keys = np.frombuffer(digests, ">u8")
    return np.argsort(keys, kind="stable") if labels is None else np.lexsort((labels, keys))


def _from_tfds(name, split, folders):
    newest = newest_version(name, folders)
    if newest is None:
        return None
    tfds = tensorflow_datasets()
    try:
        if (newest / "features.json").is_file():
            builder = tfds.builder_from_directory(str(newest))
        else:  # Old versions of TFDS left the features to the code.
            builder = tfds.builder(f"{name}:{newest.name}", data_dir=str(newest.parents[1]))
        arrays = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{newest}: the prepared copy cannot be read: {reason}") from error
    expected, received = builder.info.splits[split].num_examples, len(arrays["image"])
    if expected != received:
        raise ValueError(f"{newest}: expected {expected} examples in {split!r}. Received: {received}")
    return arrays


def _from_idx(name, split, data):
    paths = _idx_paths(name, split, data) if data else []
    if not paths or not all(path.is_file() for path in paths):
        return None
    images, labels = (_read_idx(path, dimensions) for path, dimensions in zip(paths, (3, 1), strict=True))
    if len(images) != len(labels):
        raise ValueError(f"{paths[1]}: expected {len(images)} labels, one per image. Received: {len(labels)}")
    if images.shape[1:] != IDX_SIDES:
        raise ValueError(f"{paths[0]}: expected images of {IDX_SIDES}. Received: {images.shape[1:]}")
    if labels.size and labels.max() >= IDX_CLASSES:
        raise ValueError(f"{paths[1]}: expected labels below {IDX_CLASSES}. Received: {labels.max()}")
    return {"image": images[..., None], "label": labels.astype(np.int64)}


def _idx_paths(name, split, data):
    prefix = data / name / IDX_PREFIX[split]
    return [Path(f"{prefix}-images-idx3-ubyte.gz"), Path(f"{prefix}-labels-idx1-ubyte.gz")]


def _read_idx(path, dimensions):
    """The bytes of a gzipped idx file: 0, 0, type 8, number of dimensions, big-endian sizes, the data."""
    try:
        data = gzip.decompress(path.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: truncated or not a gzip file: {error}") from error
    header = 4 + 4 * dimensions
    if data[:4] != bytes([0, 0, 8, dimensions]) or len(data) < header:
        raise ValueError(f"{path}: expected idx bytes in {dimensions} dimensions. Received: {data[:4]!r}...")
    shape = tuple(np.frombuffer(data, ">i4", dimensions, offset=4).tolist())
    expected, received = math.prod(shape), len(data) - header
    if expected != received:
        raise ValueError(f"{path}: expected {expected} bytes for shape {shape}. Received: {received}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _not_found(name, split, prepared, data, routes):
    unset = "nowhere, as CAPSZOO_DATA_DIR is not set"
    idx = ", ".join(map(str, _idx_paths(name, split, data))) if data else unset
    folders = ", ".join(str(folder / name) for folder in prepared)
    skipped, first = "", ""
    if "tfds" not in routes:
        install = "pip install 'capszoo[tensorflow,train]'"
        skipped, first = f" (passed over: needs {install})", f"\n  {install}, then one of the next two"
    return f"""the data set {name!r}, split {split!r}, was not found. Looked for
  a copy prepared by TensorFlow Datasets in {folders}{skipped};
  original files: {idx}.
Provide it in one of these ways:{first}
  python -c "import tensorflow_datasets as tfds; tfds.load('{name}')"
  TFDS_DATA_DIR=<the folder with {name}/<version>/dataset_info.json>
  CAPSZOO_DATA_DIR=<the folder with {name}/train-images-idx3-ubyte.gz and the rest of the original files>"""
