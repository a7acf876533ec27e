"""Speed of an exported bundle: its SavedModel and its LiteRT files, through the same interfaces as a server's."""

import os

import numpy as np

from capszoo.benchmarking.measuring import interleave, summarise
from capszoo.extras import extra


def measure_bundle(bundle, sizes, seconds):
    """Images per second of every artefact of a bundle by batch size, and the latency of one image.

    where:
      bundle: the folder of one version, as `capszoo.export` writes it.
      sizes: batch sizes; a single image is always measured.
      seconds: for how long each size is measured, see `interleave`.

    Returns rows `{"work": "bundle", "variant", "batch", "seconds", ...}`, see `summarise`. All CPUs are used.
    """
    import tensorflow as tf

    model = tf.saved_model.load(str(bundle))
    serving = model.signatures["serving_default"]
    shape = serving.structured_input_signature[1]["images"].shape[1:]
    rows = []
    for size in sorted({1, *sizes}):
        images = np.random.default_rng(0).random((size, *shape), dtype="float32")
        functions = {"SavedModel": _saved_model(serving, images)}
        for path in sorted((bundle / "litert").glob("*.tflite")):
            functions[f"LiteRT {path.name.split('.')[-2]}"] = _litert(path, images)
        for name, row in summarise(interleave(functions, seconds), size).items():
            latency = size / row["images_per_second"]
            rows.append({"work": "bundle", "batch": size, "variant": name, "seconds": latency, **row})
    return rows


def _saved_model(serving, images):
    import tensorflow as tf

    images = tf.constant(images)
    return lambda: [np.asarray(output) for output in serving(images=images).values()]


def _litert(path, images):
    with extra("export"):
        from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=os.cpu_count())
    runner = interpreter.get_signature_runner("serving_default")
    return lambda: runner(images=images)
