"""Classes of pictures by OpenVINO and the ONNX file of a bundle: pip install openvino numpy pillow.

python predict_openvino.py picture.png ... [--bundle export/models/efficient_mnist/1]
A stereo pair is one picture, the left view in its left half. Networks whose ONNX file has a loop are refused.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import openvino
import pictures

# By default OpenVINO computes in bfloat16 where a processor can.
PRECISION = {"INFERENCE_PRECISION_HINT": "f32"}


def predict(bundle, paths):
    """`(labels, {"scores": [n, classes], "poses": [n, classes, ...]})` of the pictures at n paths; labels may be None.

    Errors: `ValueError`, naming the file, for what is not the picture of two views where the network needs two.
    """
    report = json.loads((bundle / "export.json").read_text(encoding="utf-8"))
    model = openvino.Core().compile_model(bundle / "onnx" / f"{report['name']}.onnx", "CPU", PRECISION)
    images = np.stack([pictures.read(path, *report["image_shape"]) for path in paths])
    answer = model({"images": images})
    return report["class_names"], {output.any_name: answer[output] for output in model.outputs}


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
        best = scores.argmax()
        print(f"{path}: {labels[best] if labels else f'class {best}'} {scores[best]:.3f}")


if __name__ == "__main__":
    main()
