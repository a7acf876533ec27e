"""Reading pictures, from files, of PIL or as arrays, into what a model takes."""

import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from capszoo.data.checking import ImageError, check_shape, check_values, to_float

# Pictures only: Pillow hands an EPS file, whatever its name, to Ghostscript, which runs programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")

# 4,096 x 4,096. A PNG of 21 KB can claim a hundred times as many and take gigabytes to decode.
MAX_PIXELS = 2**24

# ITU-R 601: red, green and blue as grey, as Pillow has it.
LUMA = np.array([0.299, 0.587, 0.114], np.float32)

# Pillow's mode and the number of views for a model's number of channels.
_LAYOUTS = {1: ("L", 1), 2: ("L", 2), 3: ("RGB", 1)}


def read_image(path, image_shape, resize=False):
    """The picture in a file, or a PIL image, as float32 `[H, W, C]` in [0, 1].

    where:
      path: a regular file of one of `FORMATS`, recognised by its contents, with at most `MAX_PIXELS` pixels; of an
        animation the first frame.
      image_shape: the model's `(H, W, C)`; C is 1 (grey), 3 (colour), or 2 for a stereo pair, which is one picture
        of `H x 2W`: the left camera's view in its left half becomes channel 0, the right one channel 1.
      resize: scales a picture of another size to `H x W` (bilinear, anti-aliased), whatever its aspect ratio; the
        views of a stereo pair each by itself, and only of a picture with the aspect ratio of two views.

    Colour becomes grey by ITU-R 601 luma, grey becomes three equal channels, transparency shows black
    beneath, 16-bit grey keeps its precision, and the orientation in a photograph's EXIF is obeyed. Light on
    dark or dark on light stays as it is: a model of white digits on black will not read black ones on white.

    Errors: `ValueError`, naming the file, for what cannot be read as a picture; for more pixels than `MAX_PIXELS`, by
    the file's header, before anything is decoded; for pixels whose white is not known (32-bit integer and float);
    without `resize` for another size, and with it for what cannot be two views; `ValueError` for an `image_shape` of
    another number of channels.
    """
    height, width, channels = image_shape
    if channels not in _LAYOUTS:
        raise ValueError(
            "a picture file has 1 (grey), 2 (a stereo pair) or 3 (colour) channels. "
            f"Received image_shape: {tuple(image_shape)}"
        )
    mode, views = _LAYOUTS[channels]
    picture = ImageOps.exif_transpose(path) if isinstance(path, Image.Image) else opened(path)
    pixels = _pixels(picture, mode, path)
    rows, columns = pixels.shape[:2]
    if (rows, columns) == (height, views * width):
        return _stacked(pixels, views)
    received = f"Received: {rows}x{columns} pixels in {path}"
    if not resize:
        pair = ", the left view in the left half" if views == 2 else ""
        raise ValueError(
            f"expected a picture of {height}x{views * width} pixels (height x width{pair}), or resize=True "
            f"(--resize). {received}"
        )
    # One view alone, taken for two, would be cut in half and stretched.
    if views == 2 and (columns % 2 or columns * height != rows * 2 * width):
        raise ValueError(
            f"expected a stereo pair, two views of the aspect ratio {height}x{width} (height x width) side by side. "
            f"{received}"
        )
    return _resized(_stacked(pixels, views), (width, height))


def read_pictures(pictures, image_shape, resize=False):
    """Pictures of any kind as a batch, float32 `[B, H, W, C]` in [0, 1], and whether a single one was given.

    where:
      pictures: a path, a PIL image or an array `[H, W, C]` or, if it is grey, `[H, W]`, a list of those, or an array
        `[B, H, W, C]`. Arrays, and tensors, are uint8 of 0..255 or floats in [0, 1]; colour becomes grey and grey
        colour as in `read_image`, but the views of a stereo pair are two channels here.
      image_shape, resize: see `read_image`.

    Errors: `ValueError` for what is no picture of that shape; see `read_image` and `capszoo.data.checking`.
    """
    pictures = _of_tensor(pictures)
    single = not isinstance(pictures, list | tuple)
    array = isinstance(pictures, np.ndarray)
    if (array and not pictures.size) or (not single and not pictures):
        raise ValueError("at least one picture is needed. Received: none")
    if array and pictures.ndim > 3:
        return np.stack([_read_array(picture, image_shape, resize) for picture in pictures]), False
    each = [pictures] if single else map(_of_tensor, pictures)
    read = [
        (_read_array if isinstance(picture, np.ndarray) else read_image)(picture, image_shape, resize)
        for picture in each
    ]
    return np.stack(read), single


def _of_tensor(picture):
    """Of a tensor, of any backend, the array; of anything else itself."""
    # A path that was an entry of an array of texts is a text.
    is_tensor = hasattr(picture, "__array__") and not isinstance(picture, Image.Image | str)
    return np.asarray(picture) if is_tensor else picture


def _read_array(picture, image_shape, resize):
    """As `read_image`, of an array."""
    height, width, channels = image_shape
    grey = picture[..., None] if picture.ndim == 2 else picture
    if grey.ndim != 3 or not (grey.shape[-1] == channels or {grey.shape[-1], channels} == {1, 3}):
        check_shape((1, *picture.shape), image_shape)
    check_values(grey[None])
    pixels = _recoloured(to_float(grey), channels)
    if pixels.shape[:2] == (height, width):
        return pixels
    if not resize:
        received = "x".join(map(str, pixels.shape[:2]))
        raise ImageError(
            f"expected an array of {height}x{width} pixels (height x width), or resize=True. Received: {received}"
        )
    return _resized(pixels, (width, height))


def _recoloured(pixels, channels):
    """`[H, W, 1]` as three equal channels and `[H, W, 3]` as grey, where `channels` asks for that."""
    if pixels.shape[-1] == channels:
        return pixels
    return np.repeat(pixels, 3, axis=-1) if channels == 3 else pixels @ LUMA[:, None]


def opened(path):
    """The PIL image in a file, upright. Errors: `ValueError` naming the file, see `read_image`."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(
            f"a picture is a path, a PIL image or an array. Received: {type(path).__name__}; "
            "PIL.Image.open reads streams."
        )
    # Opening a named pipe would wait for a writer.
    if Path(path).exists() and not Path(path).is_file():
        raise ValueError(f"expected a whole, readable picture file. Received: {path} (no regular file)")
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                size = f"{image.height:,} x {image.width:,}"
                raise ValueError(f"{size} pixels are more than the {MAX_PIXELS:,} that are read")
            return ImageOps.exif_transpose(image)
    # For damaged files Pillow's decoders raise OSError, SyntaxError, ValueError and errors of their own.
    except Exception as error:
        raise ValueError(
            f"expected a whole, readable picture file (PNG, JPEG, ...). Received: {path} ({error})"
        ) from error


def _pixels(image, mode, path):
    """Pixels `[H, W, C]` in [0, 1] of an image in any Pillow mode."""
    if image.mode in ("I", "F", "LAB"):
        raise ValueError(
            "expected a picture of 8 bits per channel, or of 16-bit grey in PNG or TIFF. "
            f"Received: Pillow mode {image.mode!r} in {path}"
        )
    if image.mode.startswith("I;16"):
        # Pillow would clip 16 bits to 8, where it converts them at all.
        grey = np.asarray(image).astype("float32") / 65535
        return np.repeat(grey[..., None], len(mode), axis=-1)
    if image.has_transparency_data:
        black = Image.new("RGBA", image.size, (0, 0, 0, 255))
        image = Image.alpha_composite(black, image.convert("RGBA"))
    pixels = np.asarray(image.convert(mode), dtype="float32") / 255
    return pixels.reshape(*pixels.shape[:2], len(mode))


def _stacked(pixels, views):
    """Views that lie side by side, `[H, views * W, C]`, as channels: `[H, W, views * C]`."""
    return np.concatenate(np.split(pixels, views, axis=1), axis=-1)


def _resized(pixels, size):
    # One channel at a time, since only Pillow's one-channel float mode keeps more than 8 bits.
    channels = [Image.fromarray(channel) for channel in np.moveaxis(pixels, -1, 0)]
    return np.stack(
        [np.asarray(channel.resize(size, Image.Resampling.BILINEAR)) for channel in channels],
        axis=-1,
    )
