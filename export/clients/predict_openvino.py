"""Classes of pictures by OpenVINO and the ONNX file of a bundle: pip install openvino numpy pillow.

python predict_openvino.py picture.png ... [--bundle export/models/efficient_mnist/1]
A stereo pair is one picture, the left view in its left half. Networks whose ONNX file has a loop are refused.
"""

import json

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


if __name__ == "__main__":
    pictures.print_classes(predict, __doc__)
