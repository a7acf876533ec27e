"""Script: SavedModel -> .tflite files, with float16 weights where `.float16.` is in their names. Knows no capszoo.

A process of its own because the converter keeps memory after each conversion. TensorFlow only converts;
the files are run by ai-edge-litert.
"""

import sys
from pathlib import Path

import tensorflow as tf


def convert(saved_model, half):
    """The .tflite file of the SavedModel's `serving_default`, of LiteRT's own operators only."""
    converter = tf.lite.TFLiteConverter.from_saved_model(saved_model, signature_keys=["serving_default"])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if half:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    return converter.convert()


if __name__ == "__main__":
    source, *files = sys.argv[1:]
    for file in map(Path, files):
        file.write_bytes(convert(source, half=file.name.endswith(".float16.tflite")))
