"""smallNORB and its rendered twin synthnorb: stereo pairs of toys, with the preprocessing of the capsule papers."""

import copy
import dataclasses
import functools
import hashlib
from pathlib import Path
from typing import Literal

import numpy as np

from capszoo.config import section
from capszoo.data.dataset import DataSet
from capszoo.data.sources import DataNotFound, tfds_folders
from capszoo.data.split import ArraySplit, Split
from capszoo.extras import extra

CLASS_NAMES = ("four-legged animals", "human figures", "airplanes", "trucks", "cars")
TRAIN_INSTANCES = (4, 6, 7, 8, 9)
SIDE = 96  # of an image in the files, in pixels
MAX_SIZE = 2 * SIDE  # of one that is resized: all of a split lie in memory

# The novel-viewpoint protocols of Hinton et al. 2018, Table 2, in TFDS's codes: azimuth / 20 degrees and
# (elevation - 30 degrees) / 5. smallNORB's own files count azimuths 0, 2 ... 34 instead.
VIEWS = {
    "all": {},
    "familiar azimuth": {"azimuth": (15, 16, 17, 0, 1, 2)},  # 300, 320, 340, 0, 20, 40 degrees
    "novel azimuth": {"azimuth": tuple(range(3, 15))},  # 60 to 280 degrees
    "familiar elevation": {"elevation": (0, 1, 2)},  # 30, 35, 40 degrees
    "novel elevation": {"elevation": tuple(range(3, 9))},  # 45 to 70 degrees
}


@section("data", "smallnorb")
@dataclasses.dataclass(frozen=True)
class Smallnorb(DataSet):
    """smallNORB as the authors' EM-routing code prepares it, but for the order: resize, crop, standardise, jitter.

    A batch has the left and the right image as two channels, the category as `labels`, and the codes of `instance`,
    `elevation`, `azimuth` and `lighting` (int64 [n]; those of TFDS).

    where:
      size: both sides of the resized image, at most 192; the files have 96.
      crop: both sides of the crop, at random in training and central otherwise; `size` keeps the whole image.
      standardise: each pair gets mean 0 and deviation 1; without it, images stay (and are clipped) in [0, 1].
      jitter: what training changes brightness and contrast of: the "standardised" crop, or the "raw" pair before crop
        and standardisation, as the authors' code does.
      brightness: training images become lighter or darker by up to so many deviations of a standardised image, or so
        many of 255 grey levels of a raw one.
      contrast: training images are stretched about each channel's mean by a factor of 1 - contrast to 1 + contrast.
      validation_instance: the training toy of each category (4, 6, 7, 8 or 9) that is kept for validation, 4,860
        pairs; None trains on all 24,300 and has no validation split.
      views: which viewpoints there are, in every split: a key of `VIEWS`.

    Source: authors' code of Hinton et al. 2018 (matrix capsules with EM routing), and Table 2 for `views`.
    Differs from the paper: standardising after the jitter undoes changes of brightness and nearly undoes those of
    contrast, so by default the jitter comes last; the authors' code has jitter="raw", brightness=63, contrast=0.8. The
    authors train on all toys; here one of five is kept for choosing, unless
    `validation_instance` is None. Resized images are rounded to whole grey levels. Pixels are interpolated between
    pixel centres, so that 96 to 48 averages 2 x 2 pixels.
    Errors: `ValueError` for an option out of range; `DataNotFound` from `open`.
    """

    size: int = 48
    crop: int = 32
    standardise: bool = True
    jitter: Literal["standardised", "raw"] = "standardised"
    brightness: float = 2.0
    contrast: float = 0.5
    validation_instance: Literal[4, 6, 7, 8, 9] | None = 9
    views: Literal["all", "familiar azimuth", "novel azimuth", "familiar elevation", "novel elevation"] = (
        "all"
    )

    num_classes = len(CLASS_NAMES)
    licence = "smallNORB by LeCun, Huang, Bottou; for research purposes, not to be sold"
    class_names = CLASS_NAMES

    def __post_init__(self):
        if not 1 <= self.size <= MAX_SIZE:
            raise ValueError(f"size must be in [1, {MAX_SIZE}]. Received: {self.size}")
        if not 1 <= self.crop <= self.size:
            raise ValueError(f"crop must be in [1, {self.size}], the size. Received: {self.crop}")
        if self.brightness < 0 or not 0 <= self.contrast <= 1:
            received = f"{self.brightness}, {self.contrast}"
            raise ValueError(f"brightness must be at least 0 and contrast in [0, 1]. Received: {received}")
        if self.jitter == "standardised" and not self.standardise:
            raise ValueError("jitter of standardised images needs standardise. Received: standardise False")
        if self.validation_instance not in (None, *TRAIN_INSTANCES):
            expected = f"validation_instance must be None or one of {TRAIN_INSTANCES}"
            raise ValueError(f"{expected}. Received: {self.validation_instance!r}")
        if self.views not in VIEWS:
            raise ValueError(f"views must be one of {', '.join(VIEWS)}. Received: {self.views!r}")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return (self.crop, self.crop, 2)

    @property
    def raw_shape(self) -> tuple[int, int, int]:
        return (SIDE, SIDE, 2)

    @property
    def validates(self) -> bool:
        return self.validation_instance is not None

    @property
    def raw(self) -> "Smallnorb":
        return dataclasses.replace(self, size=SIDE, crop=SIDE, standardise=False, jitter="raw")

    @property
    def preprocessing(self) -> dict:
        return {"resize": self.size, "crop": self.crop, "standardise": self.standardise}

    def open(self, split: str) -> Split:
        """The split "train", "validation" or "test"."""
        if split not in ("train", "validation", "test"):
            raise ValueError(f"a split is one of train, validation, test. Received: {split!r}")
        if split == "validation" and self.validation_instance is None:
            raise ValueError("there is no validation split without validation_instance. Received: None")
        published = "test" if split == "test" else "train"
        images, factors = read_pairs(self.section_name, published, self.size, tuple(tfds_folders()))
        keep = np.ones(len(images), bool)
        if split != "test":
            keep = (factors["instance"] == self.validation_instance) == (split == "validation")
        for name, codes in VIEWS[self.views].items():
            keep &= np.isin(factors[name], codes)
        factors = {name: codes[keep] for name, codes in factors.items()}
        return PairSplit(images[keep], factors.pop("category"), factors, self, augmented=split == "train")


@section("data", "synthnorb")
@dataclasses.dataclass(frozen=True)
class Synthnorb(Smallnorb):
    """synthnorb (see `capszoo.data.synthnorb`) with the options of `Smallnorb`. It is not smallNORB."""

    licence = "rendered by capszoo; Apache-2.0"


class PairSplit(ArraySplit):
    """Resized stereo pairs uint8 [N, size, size, 2] that are augmented, cropped and standardised batch by batch."""

    shift = (0, 0)

    def __init__(self, images, labels, factors, options: Smallnorb, augmented: bool):
        super().__init__(images, labels, factors)
        self.options, self.augmented = options, augmented

    def shifted(self, down: int, right: int) -> "PairSplit":
        """The same pairs, with the crop of evaluation moved from the centre by that many pixels.

        Errors: `ValueError` for a crop that would leave the image.
        """
        before = (self.options.size - self.options.crop) // 2
        after = self.options.size - self.options.crop - before
        if not all(-before <= pixels <= after for pixels in (down, right)):
            expected = f"a crop can move by {-before} to {after} pixels"
            raise ValueError(f"{expected}. Received: {down} down, {right} to the right")
        moved = copy.copy(self)
        moved.shift = (down, right)
        return moved

    def batch(self, indices, rng=None):
        batch, options = super().batch(indices), self.options
        images, rng = batch["images"], rng if self.augmented else None
        if rng is not None and options.jitter == "raw":
            images = jitter(images, rng, options.brightness / 255, options.contrast)
        images = crop(images, options.crop, rng, self.shift)
        images = standardise(images) if options.standardise else np.clip(images, 0, 1)
        if rng is not None and options.jitter == "standardised":
            images = jitter(images, rng, options.brightness, options.contrast)
        return {**batch, "images": images}

    def fingerprint(self):
        moved = f" {self.shift}" if any(self.shift) else ""
        evaluation = f"{super().fingerprint()} {self.options.crop} {self.options.standardise}{moved}"
        return hashlib.sha256(evaluation.encode()).hexdigest()


def jitter(images: np.ndarray, rng: np.random.Generator, brightness: float, contrast: float) -> np.ndarray:
    """Each image [H, W, C] lightened by its own amount, then stretched about each channel's mean; not clipped.

    out = m + f (x + d - m), where:
      d: uniform in [-brightness, brightness], one for all channels.
      f: uniform in [1 - contrast, 1 + contrast], one for all channels.
      m: the mean of x + d over each channel.
    """
    shape = (len(images), 1, 1, 1)
    images = images + rng.uniform(-brightness, brightness, shape).astype(np.float32)
    mean = images.mean((1, 2), keepdims=True)
    return mean + rng.uniform(1 - contrast, 1 + contrast, shape).astype(np.float32) * (images - mean)


def crop(images: np.ndarray, size: int, rng: np.random.Generator | None, shift=(0, 0)) -> np.ndarray:
    """A size x size window of each image: anywhere, uniformly, or without `rng` `shift` pixels from the middle."""
    margin = images.shape[1] - size
    if rng is None:
        top, left = (margin // 2 + pixels for pixels in shift)
        return images[:, top : top + size, left : left + size]
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))
    rows, columns = rng.integers(0, margin, size=(2, len(images)), endpoint=True)
    return np.moveaxis(windows[np.arange(len(images)), rows, columns], 1, -1)


def standardise(images: np.ndarray) -> np.ndarray:
    """Each image less its mean, divided by its deviation, both over all of its H W C pixels; unit range in.

    The deviation counts as at least 1 / sqrt(H W C) of a grey level, so that an empty image becomes zeros.
    Source: `tf.image.per_image_standardization`, which the authors' code applies to the pair.
    """
    mean, deviation = moments(images)
    return (images - mean) / deviation


def moments(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each image `[n, 1, 1, 1]`, as `standardise` uses them."""
    axes = (1, 2, 3)
    floor = 1 / (255 * np.sqrt(np.prod(images.shape[1:])))
    deviation = np.maximum(images.std(axes, keepdims=True), np.float32(floor))
    return images.mean(axes, keepdims=True), deviation


def resize(images: np.ndarray, size: int) -> np.ndarray:
    """uint8 images [n, H, H, C] at size x size: bilinear between pixel centres, rounded, no antialiasing."""
    if images.shape[1] == size:
        return images
    weights = _bilinear(images.shape[1], size)
    rows = np.einsum("yh,nhwc->nywc", weights, images.astype(np.float32), optimize=True)
    return np.einsum("xw,nywc->nyxc", weights, rows, optimize=True).round().astype(np.uint8)


def _bilinear(old: int, new: int) -> np.ndarray:
    centre = np.clip((np.arange(new)[:, None] + 0.5) * old / new - 0.5, 0, old - 1)
    return np.maximum(1 - np.abs(np.arange(old) - centre), 0).astype(np.float32)


@functools.lru_cache(maxsize=4)
def read_pairs(
    name: str, split: str, size: int, folders: tuple[Path, ...]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Resized pairs uint8 [N, size, size, 2] and the codes of their factors, from a copy prepared by TFDS.

    The order is that of (category, instance, elevation, azimuth, lighting). Images are resized as they are read: all
    24,300 pairs of 96 x 96 would take 448 MB.
    Errors: `DataNotFound` where none of `folders` has a copy; `ValueError`, naming it, for one that is damaged.
    """
    # TFDS writes into a folder `incomplete...` first.
    versions = [sorted((folder / name).glob("[0-9]*/dataset_info.json")) for folder in folders]
    newest = next((found[-1].parent for found in versions if found), None)
    if newest is None:
        raise DataNotFound(_not_found(name, folders))
    with extra("tensorflow,train"):
        import tensorflow_datasets as tfds

    images, codes = [], []
    labels = ("label_category", "instance", "label_elevation", "label_azimuth", "label_lighting")
    try:
        dataset = tfds.builder_from_directory(newest).as_dataset(split=split, batch_size=512)
        for batch in tfds.as_numpy(dataset):
            images.append(resize(np.concatenate([batch["image"], batch["image2"]], -1), size))
            codes.append(np.stack([batch[label] for label in labels]))
    # For damaged files TensorFlow and TFDS raise errors of many kinds, over many lines.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{newest}: the prepared copy cannot be read: {reason}") from error
    codes = np.concatenate(codes, 1)
    order = np.lexsort(codes[::-1])
    factors = {label.removeprefix("label_"): row[order] for label, row in zip(labels, codes, strict=True)}
    return np.concatenate(images)[order], factors


def _not_found(name: str, folders: tuple[Path, ...]) -> str:
    commands = {
        "smallnorb": """python -c "import tensorflow_datasets as tfds; tfds.load('smallnorb')\"""",
        "synthnorb": "python -m capszoo.data.synthnorb",
    }
    looked = ", ".join(str(folder / name) for folder in folders)
    return f"""the data set {name!r} was not found. Looked for a copy prepared by TensorFlow Datasets in {looked}.
Provide it in one of these ways:
  {commands[name]}
  TFDS_DATA_DIR=<the folder with {name}/<version>/dataset_info.json>"""
