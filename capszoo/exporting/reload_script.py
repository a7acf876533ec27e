"""Script: runs every artefact of a bundle on the bundle's own examples. Knows no capszoo.

Writes JSON: by artefact and output, the largest absolute deviation from what the Keras model said. Each
example is run twice, alone and in a batch with the others, and the larger deviation counts: rows must not
depend on each other.
"""

import json
import sys
from importlib import metadata
from pathlib import Path

# A SavedModel needs neither; an import would show that one of them had crept in.
sys.modules["capszoo"] = None
sys.modules["keras"] = None

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from ai_edge_litert import schema_py_generated as schema  # noqa: E402
from ai_edge_litert.interpreter import Interpreter  # noqa: E402
from onnxruntime import InferenceSession  # noqa: E402


def deviations(function, inputs, expected):
    """Largest |output - expected| by output, over the inputs in one batch and over each of them alone."""
    together = {key: np.asarray(value) for key, value in function(inputs).items()}
    alone = [function(inputs[i : i + 1]) for i in range(len(inputs))]
    largest = {}
    for key, values in expected.items():
        rows = np.concatenate([np.asarray(outputs[key]) for outputs in alone])
        # Python's max may lose a NaN.
        largest[key] = float(np.maximum(_largest(together[key], values), _largest(rows, values)))
    return largest


def _largest(received, expected):
    if received.shape != expected.shape:
        raise ValueError(f"expected an output of shape {expected.shape}. Received: {received.shape}")
    return np.abs(received - expected).max()


def litert(path):
    """The function of a .tflite file of LiteRT's own operators: images -> outputs."""
    model = schema.Model.GetRootAsModel(path.read_bytes(), 0)
    codes = [model.OperatorCodes(i).CustomCode() for i in range(model.OperatorCodesLength())]
    foreign = [code.decode() for code in codes if code]
    if foreign:
        raise ValueError(f"{path.name} must use LiteRT's own operators only. Received: {', '.join(foreign)}")
    runner = Interpreter(str(path)).get_signature_runner("serving_default")
    return lambda images: runner(images=images)


def onnx(path):
    """The function of an .onnx file of standard operators: images -> outputs."""
    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda images: dict(zip(names, session.run(names, {"images": images}), strict=True))


def main(bundle, report):
    """Compares the artefacts of `bundle` and writes `report`."""
    extra = bundle / "assets.extra" / "examples"
    with np.load(extra / "examples.npz", allow_pickle=False) as stored:
        arrays = dict(stored)
    images = arrays.pop("images")
    pictures = np.array([(extra / f"{i}.png").read_bytes() for i in range(len(images))], dtype=object)
    features = {key for key in arrays if key.startswith("features/")}
    predicted = {key: values for key, values in arrays.items() if key not in features}
    observed = {key.removeprefix("features/"): arrays[key] for key in features}

    signatures = tf.saved_model.load(str(bundle)).signatures
    results = {
        "serving_default": deviations(
            lambda x: signatures["serving_default"](images=tf.constant(x)), images, predicted
        ),
        "predict_bytes": deviations(
            lambda x: signatures["predict_bytes"](image_bytes=tf.constant(x)), pictures, predicted
        ),
        # The features of one example are stored: they are large.
        "features": deviations(lambda x: signatures["features"](images=tf.constant(x)), images[:1], observed),
    }
    for path in sorted((bundle / "litert").glob("*.tflite")):
        results["litert-" + path.name.split(".")[-2]] = deviations(litert(path), images, predicted)
    for path in sorted((bundle / "onnx").glob("*.onnx")):
        results["onnx"] = deviations(onnx(path), images, predicted)
    versions = {name: metadata.version(name) for name in ("ai-edge-litert", "onnxruntime")}
    versions["tensorflow"] = tf.__version__
    report.write_text(json.dumps({"deviations": results, "libraries": versions}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
