"""Images that are resized, cropped and standardised, and in training jittered: options, functions and their split."""

import copy
import dataclasses
import hashlib
from typing import Literal

import numpy as np

from capszoo.config import require_at_least, require_at_most
from capszoo.data.augment import MAX_STRETCH, deform
from capszoo.data.dataset import DataSet
from capszoo.data.split import ArraySplit

MAX_SIZE = 192  # both sides of a resized image: all of a split lie in memory


@dataclasses.dataclass(frozen=True)
class CroppedImages(DataSet):
    """Options of data sets that prepare images as the authors' EM-routing code does: resize, crop, standardise, jitter.

    where:
      size: both sides of the resized image, at most 192.
      crop: both sides of the crop, at random in training and central otherwise; `size` keeps the whole image.
      standardise: each image gets mean 0 and deviation 1; without it, images stay (and are clipped) in [0, 1].
      jitter: what training changes brightness and contrast of: the "standardised" crop, or the "raw" image before crop
        and standardisation, as the authors' code does.
      brightness: training images become lighter or darker by up to so many deviations of a standardised image, or so
        many of 255 grey levels of a raw one.
      contrast: in training, differences from each channel's mean are multiplied by 1 - contrast to 1 + contrast.
      turn: training images are turned at random by up to this many degrees before the crop, at most 180; what comes
        into sight has the value of the nearest pixel. Both views of a pair turn alike, and with them the direction
        in which toys are displaced from one view to the other, so that only few degrees look like another camera.
      stretch: before that, training images are stretched along rows and columns by factors of 1 - stretch to
        1 + stretch; at most 0.9.

    Source: authors' code of Hinton et al. 2018 (matrix capsules with EM routing).
    Differs from the authors' code, which has jitter="raw", brightness=63, contrast=0.8: standardising after the jitter
    undoes changes of brightness and nearly undoes those of contrast, so by default the jitter comes last.
    Differs from the paper, whose jitter comes last too: it standardises images before the crop, here the crop is.
    Resized images are rounded to whole grey levels. Pixels are interpolated between pixel centres, so that 96 to 48
    averages 2 x 2 pixels.
    Errors: `ValueError` for an option out of range.
    """

    size: int = 48
    crop: int = 32
    standardise: bool = True
    jitter: Literal["standardised", "raw"] = "standardised"
    brightness: float = 2.0
    contrast: float = 0.5
    turn: float = 0.0
    stretch: float = 0.0

    def __post_init__(self):
        if not 1 <= self.size <= MAX_SIZE:
            raise ValueError(f"size must be in [1, {MAX_SIZE}]. Received: {self.size}")
        if not 1 <= self.crop <= self.size:
            raise ValueError(f"crop must be in [1, {self.size}], the size. Received: {self.crop}")
        require_at_least(self, 0, "brightness", "contrast", "turn", "stretch")
        require_at_most(self, brightness=255, contrast=1, turn=180, stretch=MAX_STRETCH)
        if self.jitter == "standardised" and not self.standardise:
            raise ValueError("jitter of standardised images needs standardise. Received: standardise False")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return (self.crop, self.crop, self.raw_shape[2])

    @property
    def raw(self) -> "CroppedImages":
        side = self.raw_shape[0]
        return dataclasses.replace(self.unstandardised, size=side, crop=side)

    @property
    def unstandardised(self) -> "CroppedImages":
        return dataclasses.replace(self, standardise=False, jitter="raw")

    @property
    def preprocessing(self) -> dict:
        return {"resize": self.size, "crop": self.crop, "standardise": self.standardise}


class CroppedSplit(ArraySplit):
    """Resized images uint8 [N, size, size, C] that are augmented, cropped and standardised batch by batch."""

    shift = (0, 0)

    def __init__(self, images, labels, factors, options: CroppedImages, augmented: bool):
        super().__init__(images, labels, factors)
        self.options, self.augmented = options, augmented

    @property
    def margins(self) -> tuple[int, int]:
        before = (self.options.size - self.options.crop) // 2
        return before, self.options.size - self.options.crop - before

    def shifted(self, down: int, right: int) -> "CroppedSplit":
        """The same images, with the crop of evaluation moved from the centre by that many pixels.

        Errors: `ValueError` for a crop that would leave the image.
        """
        before, after = self.margins
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
        if rng is not None and (options.turn or options.stretch):
            images = deform(images, rng, options.turn, options.stretch, outside="edge")
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
    """Each image [H, W, C] made lighter or darker, then its contrast changed, by amounts of its own; not clipped.

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
    mean, low, high = (reduce(images, axes, keepdims=True) for reduce in (np.mean, np.min, np.max))
    # The rounded mean of an empty image may be none of its pixels; what is left would be divided to a constant.
    return np.clip(mean, low, high), deviation


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
