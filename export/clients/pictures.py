"""What clients without a server share: how `predict_bytes` reads pictures, and the command line.

pip install numpy pillow
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

# Of the deployment kit that this file is in.
BUNDLE = Path(__file__).parents[1] / "models" / "efficient_mnist" / "1"
# ITU-R 601: red, green and blue as grey.
LUMA = np.array([0.299, 0.587, 0.114], "float32")


def read(path, height, width, channels):
    """A picture as float32 `[height, width, channels]` in [0, 1]; of 16 bits of colour Pillow gives 8.

    Errors: `ValueError` for a stereo network and a picture that has not the aspect ratio of two views.
    """
    colours = _over_black(path)
    if channels == 3:
        planes = np.moveaxis(colours, -1, 0)
    elif channels == 2:
        planes = np.split(_two_views(colours @ LUMA, height, width, path), 2, axis=1)
    else:
        planes = [colours @ LUMA]
    scaled = [Image.fromarray(plane).resize((width, height), Image.Resampling.BILINEAR) for plane in planes]
    return np.stack(scaled, axis=-1).clip(0, 1)


def _over_black(path):
    """Colours float32 `[h, w, 3]` in [0, 1] of a PNG or JPEG; transparency shows black."""
    with Image.open(path, formats=("PNG", "JPEG")) as picture:
        # 16 bits of grey; Pillow would clip them to 8.
        if picture.mode.startswith("I"):
            return np.repeat(np.asarray(picture, "float32")[..., None] / 65535, 3, axis=-1)
        if "A" not in picture.mode and picture.mode != "P":
            # A colour that is named transparent, which TensorFlow leaves as it is.
            picture.info.pop("transparency", None)
        pixels = np.asarray(picture.convert("RGBA"), "float32") / 255
    return pixels[..., :3] * pixels[..., 3:]


def _two_views(grey, height, width, path):
    """`grey`, unless it has not the aspect ratio of two views: one alone would be cut in half and stretched."""
    rows, columns = grey.shape
    if columns % 2 or columns * height != rows * 2 * width:
        raise ValueError(
            f"expected two views of the aspect ratio {height}x{width} (height x width) side by side. "
            f"Received: {rows}x{columns} pixels in {path}"
        )
    return grey


def print_classes(predict, description):
    """Prints the greatest score of each picture on the command line, and its class, or its place if that has no name.

    where:
      predict: of the folder of a bundle and n paths, `(labels or None, {"scores": [n, classes], ...})`.

    Ends with what the network gives instead where that is no scores.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", nargs="+", type=Path)
    parser.add_argument("--bundle", type=Path, default=BUNDLE)
    options = parser.parse_args()
    try:
        labels, outputs = predict(options.bundle, options.pictures)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from error
    if "scores" not in outputs:
        raise SystemExit("this network names no classes: its answer has no scores")
    for path, scores in zip(options.pictures, outputs["scores"], strict=True):
        best = scores.argmax()
        print(f"{path}: {labels[best] if labels else f'output {best}'} {scores[best]:.3f}")
