"""Script: SavedModel -> .onnx file of float32, of ONNX's own operators only. Knows no capszoo.

A process of its own because the converter looks at the arguments of its process, and changes settings of TensorFlow.
"""

import sys

import onnx
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from tf2onnx.convert import main

# The newest that the converter writes; ONNX Runtime has it since 1.14.
OPSET = 18


def fold(path):
    """Folds constants of the file, of which the converter leaves some twice, and names the operators that are left."""
    options = SessionOptions()
    # What holds for every machine; the next level would use operators of ONNX Runtime.
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = path
    InferenceSession(path, options, providers=["CPUExecutionProvider"])
    model = onnx.load(path)
    own = [each for each in model.opset_import if not each.domain]
    del model.opset_import[:]
    model.opset_import.extend(own)
    # It names the folder that was converted.
    model.graph.doc_string = ""
    # An operator from elsewhere has no version now, and is refused.
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


if __name__ == "__main__":
    source, target = sys.argv[1:]
    sys.argv[1:] = ["--saved-model", source, "--signature_def", "serving_default"]
    sys.argv += ["--opset", str(OPSET), "--output", target]
    main()
    fold(target)
