"""Any labelled image set of TensorFlow Datasets."""

import dataclasses
import functools
import hashlib

import numpy as np

from capszoo.config import section
from capszoo.data.labelled import LabelledPictures, array_to_levels, shares
from capszoo.data.sources import DataNotFound, newest_version, tensorflow_datasets, tfds_folders


@section("data", "tfds")
@dataclasses.dataclass(frozen=True)
class Tfds(LabelledPictures):
    """A data set that TensorFlow Datasets has prepared, by its name there.

    where:
      set: the name, such as "cifar10"; its images and labels are the features `image` and `label`.
      others: see `LabelledPictures`. A split "test" or, where there is none, "validation" is the test split; of sets
        with a single split the share `test` is taken out. The validation split is always a share.

    Errors: `DataNotFound` for a set that is not prepared in `TFDS_DATA_DIR`, `CAPSZOO_DATA_DIR` or the user's folder.
    """

    set: str = ""
    image: str = "image"
    label: str = "label"

    def _look(self):
        features = _builder(self.set).info.features
        for name in (self.image, self.label):
            if name not in features:
                known = ", ".join(features)
                raise ValueError(f"{self.set} has no feature {name!r}. Received features: {known}")
        shape = features[self.image].shape
        if len(shape) != 3:
            raise ValueError(f"image must name pictures [H, W, C]. Received: {self.image!r} of shape {shape}")
        if not hasattr(features[self.label], "names"):
            raise ValueError(f"label must name classes. Received: {self.label!r}, {features[self.label]}")
        if None in shape:
            shape = next(_examples(self.set, "train[:1]", self.image, self.label))[0].shape
        return tuple(features[self.label].names), tuple(shape)

    def _read(self, split):
        published = _builder(self.set).info.splits
        # The labels of some test sets are kept secret: all of them are -1.
        tests = [name for name in ("test", "validation") if name in published and self._tells_labels(name)]
        if split == "test" and tests:
            return self._levels_of(tests[0])[:2]
        images, labels, keys = self._levels_of("train")
        chosen = shares(keys, labels.tolist(), 0 if tests else self.test, self.validation) == split
        return images[chosen], labels[chosen]

    def _tells_labels(self, split):
        return next(_examples(self.set, f"{split}[:1]", self.image, self.label))[1] >= 0

    def _levels_of(self, split):
        images, labels, keys = _levels(self.set, split, self.image, self.label, self.image_shape)
        if labels.min(initial=0) < 0:
            raise ValueError(f"{self.set} has pictures without a label in its split {split!r}.")
        if labels.max(initial=0) >= self.num_classes:
            raise ValueError(
                f"{self.set} has labels up to {labels.max()}, more than the {self.num_classes} class_names: "
                f"{', '.join(self.class_names)}"
            )
        return images, labels, keys


def _builder(name):
    newest = newest_version(name, tfds_folders()) if name else None
    if newest is None:
        looked = ", ".join(str(folder / name) for folder in tfds_folders())
        raise DataNotFound(
            f"the data set {name!r} of TensorFlow Datasets is not prepared. Looked in {looked}. Prepare it: python -c "
            f"\"import tensorflow_datasets as tfds; tfds.load('{name}')\"; in a recipe: data.set=NAME"
        )
    return tensorflow_datasets().builder_from_directory(str(newest))


def _examples(name, split, image, label):
    tfds = tensorflow_datasets()
    for example in tfds.as_numpy(_builder(name).as_dataset(split=split)):
        yield example[image], example[label]


@functools.lru_cache(maxsize=4)
def _levels(name, split, image, label, image_shape):
    """Images uint8 `[N, H, W, C]`, labels `[N]` and, of each picture as it is published, the hash."""
    levels, labels, hashes = [], [], []
    # One at a time: as they are published, pictures may take more memory than there is.
    for picture, known in _examples(name, split, image, label):
        levels.append(array_to_levels(picture, image_shape))
        labels.append(known)
        hashes.append(hashlib.sha256(picture.tobytes()).hexdigest())
    levels = np.stack(levels)
    levels.setflags(write=False)
    return levels, np.array(labels, np.int64), hashes
