"""What an image is, decided in one place: for models in Python, for the command line and for exported bundles."""

import numpy as np

# A client's own resizing may round a little beyond black or white.
TOLERANCE = 1e-3
# Where `preprocess` is, for people who have raw pictures.
_HINT = (
    "model.preprocess makes a network's input of raw images, and model.classify takes pictures as they are"
)


class ImageError(ValueError):
    """Arrays that are no images of the kind that is asked for."""


def check_shape(shape, expected, what="images"):
    """Errors: `ImageError` unless `shape` is `(B, *expected)`, saying what is likely meant.

    where:
      shape: of what was received; None for an axis whose size is not known.
      expected: `(H, W, C)`.
    """
    shape, expected = tuple(shape), tuple(expected)
    if len(shape) == 1 + len(expected) and all(
        size in (None, wanted) for size, wanted in zip(shape[1:], expected, strict=True)
    ):
        return
    wanted = f"{what} must have the shape [B, {', '.join(map(str, expected))}]"
    raise ImageError(f"{wanted}. Received: {list(shape)}{_likely(shape, expected)}. {_HINT}.")


def _likely(shape, expected):
    """What someone has probably done who gives images of this shape, as the end of a sentence."""
    height, width, channels = expected
    if shape == expected:
        return ", one image without the axis of the batch: images[None] adds it"
    if channels == 1 and shape[-2:] == (height, width) and len(shape) in (2, 3):
        return ", without the axis of the channel: images[..., None] adds it"
    if len(shape) == 4 and shape[1:] == (channels, height, width):
        return ", channels first: they come last here, images.transpose(0, 2, 3, 1)"
    if len(shape) == 4 and shape[1:3] == (height, width):
        return f", {shape[3]} channels instead of {channels}"
    return ""


def check_type(dtype):
    """Errors: `ImageError` unless `dtype`, of an array or of a graph's tensor, is uint8 or one of floats."""
    name = getattr(dtype, "name", str(dtype))
    if name != "uint8" and "float" not in name:
        raise ImageError(f"images must be uint8 of 0..255 or floats in [0, 1]. Received: {name}. {_HINT}.")


def check_values(images, standardised=False):
    """Errors: `ImageError` unless an array has values that images have.

    where:
      images: uint8, grey levels 0..255, or floats in [0, 1], finite; `[B, H, W, C]`.
      standardised: the network takes images of mean 0 and deviation 1 instead, finite floats: what `preprocess` makes.
    """
    grey_levels = images.dtype == np.uint8
    if (grey_levels and standardised) or not (grey_levels or images.dtype.kind == "f"):
        expected = "standardised floats" if standardised else "uint8 of 0..255 or floats in [0, 1]"
        raise ImageError(f"images must be {expected}. Received: {images.dtype}. {_HINT}.")
    if grey_levels or not images.size:
        return
    low, high = float(images.min()), float(images.max())
    # A comparison with NaN is false.
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ImageError(f"images must be finite numbers, none of them NaN. Received: {low} to {high}.")
    if standardised:
        if low >= 0 and high > 0:
            raise ImageError(
                "this network takes images of mean 0 and deviation 1. "
                f"Received: raw ones, {low:g} to {high:g}. {_HINT}."
            )
    elif low < -TOLERANCE or high > 1 + TOLERANCE:
        hint = " Grey levels of 0..255 are taken as uint8, or divided by 255." if high > 2 else ""
        raise ImageError(f"images must be numbers in [0, 1]. Received: {low:g} to {high:g}.{hint}")


def to_float(images: np.ndarray) -> np.ndarray:
    """Images as float32 in [0, 1]: uint8 are grey levels 0..255, floats stay."""
    if images.dtype == np.uint8:
        return images.astype(np.float32) / np.float32(255)
    return np.asarray(images, np.float32)
