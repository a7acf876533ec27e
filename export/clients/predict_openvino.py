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

    Errors: `ValueError`, naming the file, for what is not the picture of two views where the network needs two, and for
    a network that OpenVINO does not take.
    """
    report = json.loads((bundle / "export.json").read_text(encoding="utf-8"))
    path = bundle / "onnx" / f"{report['name']}.onnx"
    try:
        model = openvino.Core().compile_model(path, "CPU", PRECISION)
    except RuntimeError as error:
        # After where in its own code it was, the last line says what it is.
        said = str(error).strip().rpartition("\n")[2]
        raise ValueError(f"{path}: {said}") from error
    images = np.stack([pictures.read(path, *report["image_shape"]) for path in paths])
    answer = model({"images": images})
    return report["class_names"], {output.any_name: answer[output] for output in model.outputs}


if __name__ == "__main__":
    pictures.print_classes(predict, __doc__)
