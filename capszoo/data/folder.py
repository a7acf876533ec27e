"""A folder of pictures: a folder for each class."""

import dataclasses
import functools
import logging
import os
from pathlib import Path

import numpy as np

from capszoo.config import ConfigError, section
from capszoo.data.images import opened
from capszoo.data.labelled import LabelledPictures, shares, to_levels
from capszoo.data.sources import DataNotFound

LOGGER = logging.getLogger(__name__)

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")

# Of the pictures that cannot be read an error names as many beside the first.
NAMED = 10

KNOWN = {"train", "test", "validation"}
OTHER_SPELLINGS = {"training", "testing", "val", "valid", "dev", "eval"}


@section("data", "folder")
@dataclasses.dataclass(frozen=True)
class Folder(LabelledPictures):
    """Pictures in a folder for each class, `PATH/CLASS/...`, or where the split is given `PATH/SPLIT/CLASS/...`.

    where:
      path: the folder. With folders `train` and `test` (and `validation`) in it, those are the splits; else the shares
        `test` and `validation` of each class are taken out, chosen by the hash of each picture's place in `path`.
      others: see `LabelledPictures`.

    Files and folders whose names begin with a dot are passed over; links to folders are followed.
    Errors: `DataNotFound` for a folder without pictures, unless class names, size and channels are given; `ConfigError`
    for a folder `train` that has no `test` but only a validation split beside it, and for splits `val` and `valid`.
    """

    path: str = ""

    @property
    def set_name(self) -> str:
        return f"{self.section_name} {Path(self.path).name}".rstrip()

    @property
    def _root(self):
        return Path(self.path).expanduser()

    @property
    def _split_by_folder(self):
        return all((self._root / split).is_dir() for split in ("train", "test"))

    def _require_known_splits(self):
        """Errors: `ConfigError` for splits that would be taken for classes, or passed over."""
        folders = self._root.iterdir() if self._root.is_dir() else ()
        names = {path.name for path in folders if path.is_dir() and not path.name.startswith(".")}
        splits = {name for name in names if name.lower() in KNOWN | OTHER_SPELLINGS}
        unknown = splits - KNOWN
        if self._split_by_folder and not unknown:
            return
        # One class may be called like a split.
        if not (self._split_by_folder or len(splits) > 1 or (names and names == splits)):
            return
        raise ConfigError(
            f"{self.path}: splits are folders train, test and, if there is one, validation; without train and test "
            f"each folder is a class. Received: {', '.join(sorted(names))}"
        )

    @property
    def validates(self) -> bool:
        if self._split_by_folder:
            return (self._root / "validation").is_dir() or self.validation > 0
        return self.validation > 0

    def _look(self):
        if not self.path:
            raise DataNotFound(
                "a folder of pictures is needed: data.path=FOLDER, with a folder for each class."
            )
        self._require_known_splits()
        root = self._root / "train" if self._split_by_folder else self._root
        files = _files(root)
        classes = tuple(sorted({name for _, name in files}))
        _warn_of_other_folders(root, classes)
        first = opened(files[0][0])
        grey = first.mode in ("L", "1", "LA") or first.mode.startswith("I;16")
        return classes, (first.height, first.width, 1 if grey else 3)

    def _read(self, split):
        self._require_known_splits()
        if self._split_by_folder and (split == "test" or (self._root / "validation").is_dir()):
            return self._levels(_files(self._root / split))
        root = self._root / "train" if self._split_by_folder else self._root
        files = _files(root)
        keys = [path.relative_to(root).as_posix() for path, _ in files]
        # Of a training folder only a validation split is taken out.
        test = 0 if self._split_by_folder else self.test
        parts = shares(keys, [name for _, name in files], test, self.validation)
        return self._levels([file for file, part in zip(files, parts, strict=True) if part == split])

    def _levels(self, files):
        unknown = sorted({name for _, name in files} - set(self.class_names))
        if unknown:
            raise ValueError(
                f"{self.path} has classes beside {', '.join(self.class_names)}: {', '.join(unknown)}"
            )
        times = tuple((str(path), path.stat().st_mtime_ns) for path, _ in files)
        labels = [self.class_names.index(name) for _, name in files]
        return _decoded(times, self.image_shape), np.array(labels, np.int64)


def pictures_in(folder) -> list[Path]:
    """The pictures that lie in a folder itself, in the order of their names. Errors: `DataNotFound` if none does."""
    files = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in SUFFIXES)
    pictures = [path for path in files if path.is_file() and not path.name.startswith(".")]
    if not pictures:
        raise DataNotFound(f"no pictures in {folder}: expected files {', '.join(SUFFIXES)}.")
    return pictures


def _files(root):
    """`(path, class)` of every picture below the folders of classes in `root`, in order."""
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    files = [
        (path, folder.name)
        for folder in folders
        for path in sorted(_below(folder))
        if path.suffix.lower() in SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]
    if not files:
        raise DataNotFound(
            f"no pictures in {root}: expected a folder for each class, with files {', '.join(SUFFIXES)}."
        )
    return files


def _warn_of_other_folders(root, classes):
    """Names the folders that are no classes because they hold other things than pictures."""
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        if folder.name not in classes and not folder.name.startswith(".") and any(folder.iterdir()):
            LOGGER.warning("%s holds no pictures (%s), and is no class.", folder, ", ".join(SUFFIXES))


def _below(folder):
    """All files below a folder, through links to folders too, but for hidden ones.

    No folder is met twice, but by the first of its names, and none that the folder lies in.
    """
    seen = set(map(str, folder.resolve().parents))
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place) / name for name in files)


@functools.lru_cache(maxsize=8)
def _decoded(files, image_shape):
    """Pictures as `[N, H, W, C]`; read once per process, and again where a file has changed.

    Errors: one `ValueError` for all that cannot be read, so that they can be mended together.
    """
    levels, errors = np.empty((len(files), *image_shape), np.uint8), {}
    for image, (path, _) in zip(levels, files, strict=True):
        try:
            image[...] = to_levels(path, image_shape)
        except ValueError as error:
            errors[path] = error
    if errors:
        _, *others = errors
        first, named = next(iter(errors.values())), ", ".join(others[:NAMED])
        more = f"; {len(others)} more cannot be read: {named}" if others else ""
        raise ValueError(f"{first}{more}{', ...' if len(others) > NAMED else ''}") from first
    levels.setflags(write=False)
    return levels
