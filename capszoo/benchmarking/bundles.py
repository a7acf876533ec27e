"""Speed of an exported bundle: its SavedModel and its LiteRT files, through the same interfaces as a server's."""

import os
from pathlib import Path

import numpy as np

from capszoo.benchmarking.measuring import interleave, summarise
from capszoo.extras import extra

# Batch sizes of the comparison in cards: a phone's, and a server's.
COMPARED = (1, 32)
SECONDS = 5.0


def measure_bundle(bundle, sizes, seconds):
    """Images per second of every artefact of a bundle by batch size, and the latency of one image.

    where:
      bundle: the folder of one version, as `capszoo.export` writes it.
      sizes: batch sizes; a single image is always measured.
      seconds: for how long each size is measured, see `interleave`.

    Returns rows `{"work": "bundle", "variant", "batch", "seconds", ...}`, see `summarise`. All CPUs are used.
    """
    artefacts, rows = _Artefacts(bundle), []
    for size in sorted({1, *sizes}):
        functions = artefacts.functions(artefacts.images(size))
        for name, row in summarise(interleave(functions, seconds), size).items():
            latency = size / row["images_per_second"]
            rows.append({"work": "bundle", "batch": size, "variant": name, "seconds": latency, **row})
    return rows


def compare_bundle(model, bundle, seconds=SECONDS):
    """How fast the artefacts of a bundle are, as multiples of the Keras model they were made of, in turns with it.

        speed = median over rounds of seconds of the Keras model / seconds of the artefact

    where:
      model: a `keras.Model` of `capszoo.load`; it predicts in this process, with compiled routing where it has that.
      bundle, seconds: as in `measure_bundle`.

    Returns `{artefact: {batch size: speed}}`, names as in cards, batch sizes as text.
    """
    artefacts, speeds = _Artefacts(bundle), {}
    for size in COMPARED:
        images = artefacts.images(size)
        inputs = model.preprocess(images)
        functions = {
            **artefacts.functions(images),
            "keras": lambda inputs=inputs: model.predict_on_batch(inputs),
        }
        for name, row in summarise(interleave(functions, seconds), size).items():
            if name != "keras":
                speeds.setdefault(name, {})[str(size)] = row["faster_than"]["keras"]
    return speeds


class _Artefacts:
    """What of a bundle can be run."""

    def __init__(self, bundle):
        import tensorflow as tf

        self.model = tf.saved_model.load(str(bundle))
        self.serving = self.model.signatures["serving_default"]
        self.shape = self.serving.structured_input_signature[1]["images"].shape[1:]
        self.files = sorted((Path(bundle) / "litert").glob("*.tflite"))

    def images(self, size):
        """Random images `[size, H, W, C]`."""
        return np.random.default_rng(0).random((size, *self.shape), dtype="float32")

    def functions(self, images):
        """Name in cards -> function that runs an artefact on `images`."""
        functions = {"saved-model": _saved_model(self.serving, images)}
        return functions | {
            "litert-" + path.name.split(".")[-2]: _litert(path, images) for path in self.files
        }


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
