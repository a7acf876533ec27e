"""Classes of pictures by the ONNX file of a bundle, without a server: pip install onnxruntime numpy pillow.

python predict_onnx.py picture.png ... [--bundle export/models/efficient_mnist/1]
A stereo pair is one picture, the left view in its left half.
"""

import json

import numpy as np
import onnxruntime
import pictures


def predict(bundle, paths):
    """`(labels, {"scores": [n, classes], "poses": [n, classes, ...]})` of the pictures at n paths; labels may be None.

    Errors: `ValueError`, naming the file, for what is not the picture of two views where the network needs two, and for
    a damaged network.
    """
    report = json.loads((bundle / "export.json").read_text(encoding="utf-8"))
    try:
        session = onnxruntime.InferenceSession(bundle / "onnx" / f"{report['name']}.onnx")
    except Exception as error:  # Those of ONNX Runtime have nothing else in common.
        raise ValueError(error) from error
    names = [output.name for output in session.get_outputs()]
    images = np.stack([pictures.read(path, *report["image_shape"]) for path in paths])
    return report["class_names"], dict(zip(names, session.run(names, {"images": images}), strict=True))


if __name__ == "__main__":
    pictures.print_classes(predict, __doc__)
