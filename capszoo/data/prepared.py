"""Copies of data sets that TensorFlow Datasets has prepared, read batch by batch and without their builders' code."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from capszoo.data.sources import DataNotFound, newest_version, tensorflow_datasets


def read_prepared(
    name: str,
    split: str,
    folders: tuple[Path, ...],
    convert: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]],
    provided_by: str,
) -> dict[str, np.ndarray]:
    """The arrays `[N, ...]` of a split of a prepared copy, in the order of its file.

    where:
      folders: where `name`/VERSION is looked for, in that order; the newest version is read.
      convert: what is kept of each batch of features, so that no more than that is ever in memory.
      provided_by: a line on how the data set is had, for the error.

    Errors: `DataNotFound` where none of `folders` has a copy; `ValueError`, naming it, for one that is damaged.
    """
    newest = newest_version(name, folders)
    if newest is None:
        raise DataNotFound(_not_found(name, folders, provided_by))
    tfds = tensorflow_datasets()
    try:
        dataset = tfds.builder_from_directory(newest).as_dataset(split=split, batch_size=512)
        parts = [convert(batch) for batch in tfds.as_numpy(dataset)]
    # For damaged files TensorFlow and TFDS raise errors of many kinds, over many lines.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{newest}: the prepared copy cannot be read: {reason}") from error
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _not_found(name, folders, provided_by):
    looked = ", ".join(str(folder / name) for folder in folders)
    return f"""the data set {name!r} was not found. Looked for a copy prepared by TensorFlow Datasets in {looked}.
Provide it in one of these ways:
  {provided_by}
  TFDS_DATA_DIR=<the folder with {name}/<version>/dataset_info.json>"""
