"""What happens to a picture between its file and the network."""

import math

import keras
from keras import ops

from capszoo.data.checking import ImageError, check_type


@keras.saving.register_keras_serializable(package="capszoo")
class Preprocessing(keras.layers.Layer):
    """Raw images to the network's input: bilinear resize, centre crop, standardisation, in this order.

        x <- (x - mean(x)) / max(std(x), 1 / (255 * sqrt(N)))        # standardise

    where:
      x: raw images `[B, H, W, C]` in [0, 1], floats; uint8 of 0..255 are divided by 255.
      resize: side, or `(height, width)`, to scale the whole image to; None keeps its size.
      crop: side, or `(height, width)`, of the window cut from the centre (rounded to the upper left); None
        keeps all.
      standardise: mean 0 and standard deviation 1 over the N = H * W * C values of each image, all channels
        jointly.

    Without options it is the identity of floats. Every image is treated alone: rows do not depend on each other.
    Errors: `ValueError` for sides below one and for a crop larger than the image; `ImageError` for other shapes and
    types.
    Source: authors' code of Hinton et al. 2018 (smallNORB: resize 48, crop 32, standardise); the floor under
    the standard deviation is TensorFlow's 1 / sqrt(N), for pixels of 0 to 255.
    Differs from the authors' code: pixels are sampled at their centres, so that halving averages two by two;
    TensorFlow 1's resize took every second pixel. Differs from the paper: it standardises before the crop.
    """

    def __init__(self, resize=None, crop=None, standardise=False, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.resize = _sides(resize, "resize")
        self.crop = _sides(crop, "crop")
        self.standardise = standardise

    def call(self, images):
        if len(images.shape) != 4:
            raise ImageError(f"images must have the shape [B, H, W, C]. Received: {list(images.shape)}")
        images = grey_levels_to_unit(images)
        if self.resize:
            images = ops.image.resize(
                images, self.resize, interpolation="bilinear", data_format="channels_last"
            )
        if self.crop:
            images = _centre(images, self.crop)
        return _standardised(images) if self.standardise else images

    def get_config(self):
        return {
            **super().get_config(),
            "resize": self.resize,
            "crop": self.crop,
            "standardise": self.standardise,
        }


def grey_levels_to_unit(images):
    """uint8 of 0..255 as float32 in [0, 1]; floats stay. Errors: `ImageError` for other types."""
    check_type(images.dtype)
    if keras.backend.standardize_dtype(images.dtype) != "uint8":
        return images
    return ops.cast(images, "float32") / 255.0


def _sides(value, name):
    """`(height, width)` of a side or a pair; None stays None."""
    if value is None:
        return None
    sides = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(sides) != 2 or not all(isinstance(side, int) and side >= 1 for side in sides):
        raise ValueError(f"{name} must be a side or (height, width), each at least 1. Received: {value!r}")
    return sides


def _centre(images, crop):
    if None in images.shape[1:3] or crop[0] > images.shape[1] or crop[1] > images.shape[2]:
        raise ValueError(
            f"a crop of {crop} needs images at least that large. Received: {tuple(images.shape)}"
        )
    top, left = ((size - side) // 2 for size, side in zip(images.shape[1:3], crop, strict=True))
    return images[:, top : top + crop[0], left : left + crop[1], :]


def _standardised(images):
    mean, low, high = (
        reduce(images, axis=(1, 2, 3), keepdims=True) for reduce in (ops.mean, ops.min, ops.max)
    )
    # The rounded mean of a flat image may be none of its pixels; what is left would be divided to a constant.
    centred = images - ops.clip(mean, low, high)
    deviation = ops.sqrt(ops.mean(ops.square(centred), axis=(1, 2, 3), keepdims=True))
    return centred / ops.maximum(deviation, 1.0 / (255.0 * math.sqrt(math.prod(images.shape[1:]))))
