"""Classes of pictures by the ONNX file of a bundle, without a server: pip install onnxruntime numpy pillow.

python predict_onnx.py picture.png ... [--bundle export/models/efficient_mnist/1]
A stereo pair is one picture, the left view in its left half.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

MODES = {1: "L", 2: "L", 3: "RGB"}


def predict(bundle, pictures):
    """`(labels, {"scores": [n, classes], "poses": [n, classes, ...]})` of the pictures at n paths.

    The file takes whatever it is given: numbers outside [0, 1] and NaN are not refused.
    """
    report = json.loads((bundle / "export.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(bundle / "onnx" / f"{report['name']}.onnx")
    names = [output.name for output in session.get_outputs()]
    images = np.stack([_read(path, *report["image_shape"]) for path in pictures])
    return report["class_names"], dict(zip(names, session.run(names, {"images": images}), strict=True))


def _read(path, height, width, channels):
    """A picture as float32 `[height, width, channels]` in [0, 1]."""
    with Image.open(path) as opened:
        picture = opened.convert(MODES[channels])
    if channels != 2:
        pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))
        return pixels.reshape(height, width, channels) / np.float32(255)
    middle = picture.width // 2
    views = [picture.crop((x, 0, x + middle, picture.height)) for x in (0, middle)]
    scaled = [np.asarray(view.resize((width, height), Image.Resampling.BILINEAR)) for view in views]
    return np.stack(scaled, axis=-1) / np.float32(255)


def main():
    """Prints the most active class of each picture and its score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", nargs="+", type=Path)
    parser.add_argument("--bundle", type=Path, default=Path("export/models/efficient_mnist/1"))
    options = parser.parse_args()
    labels, outputs = predict(options.bundle, options.pictures)
    for path, scores in zip(options.pictures, outputs["scores"], strict=True):
        print(f"{path}: {labels[scores.argmax()]} {scores.max():.3f}")


if __name__ == "__main__":
    main()
