"""Speed of what an exported bundle holds, through the same interfaces as a server's."""

import json
from pathlib import Path

import numpy as np

from capszoo.benchmarking.measuring import interleave, summarise
from capszoo.exporting.artefacts import runners
from capszoo.exporting.verification import REPORT

# Batch sizes of the comparison in cards: a phone's, and a server's.
COMPARED = (1, 32)
SECONDS = 5.0


def require_bundle(bundle):
    """Errors: `ValueError` for what is not the folder of one version of a bundle."""
    if not (Path(bundle) / REPORT).is_file():
        raise ValueError(f"the folder of one version of a bundle is needed. Received: {bundle}")


def name_of(bundle) -> str:
    """What a bundle was exported as. Errors: `ValueError` for what is no bundle."""
    require_bundle(bundle)
    return json.loads((Path(bundle) / REPORT).read_text(encoding="utf-8"))["name"]


def measure_bundle(bundle, sizes, seconds):
    """Images per second of every artefact of a bundle by batch size, and the latency of one image.

    where:
      bundle: the folder of one version, as `capszoo.export` writes it.
      sizes: batch sizes; a single image is always measured.
      seconds: for how long each size is measured, see `interleave`.

    Returns rows `{"work": "bundle", "variant", "batch", "seconds", ...}`, see `summarise`, without CPU seconds: the
    SavedModel spends them in a process of its own, see `runners`. All CPUs are used.
    """
    runs, rows = runners(Path(bundle)), []
    for size in sorted({1, *sizes}):
        functions = _on(runs, _images(bundle, size))
        for name, row in summarise(interleave(functions, seconds), size).items():
            latency = size / row["images_per_second"]
            del row["cpu_seconds"], row["less_cpu_than"]
            rows.append({"work": "bundle", "batch": size, "variant": name, "seconds": latency, **row})
    return rows


def compare_bundle(model, bundle, seconds=SECONDS):
    """How fast the artefacts of a bundle are, as multiples of the Keras model they were made of, in turns with it.

        speed = median over rounds of seconds of the Keras model / seconds of the artefact

    where:
      model: a `keras.Model` of `capszoo.load`; it predicts in this process, with compiled routing where it has that,
        and on its accelerator where it has one; artefacts never use any.
      bundle, seconds: as in `measure_bundle`.

    Returns `{artefact: {batch size: speed}}`, names as in cards, batch sizes as text.
    """
    runs, speeds = runners(Path(bundle)), {}
    for size in COMPARED:
        images = _images(bundle, size)
        inputs = model.preprocess(images)
        functions = {
            **_on(runs, images),
            "keras": lambda inputs=inputs: model.predict_on_batch(inputs),
        }
        for name, row in summarise(interleave(functions, seconds), size).items():
            if name != "keras":
                speeds.setdefault(name, {})[str(size)] = row["faster_than"]["keras"]
    return speeds


def _on(runs, images):
    return {name: lambda run=run: run(images) for name, run in runs.items()}


def _images(bundle, size):
    """Random images `[size, H, W, C]` of the shape that a bundle takes."""
    shape = json.loads((Path(bundle) / REPORT).read_text(encoding="utf-8"))["image_shape"]
    return np.random.default_rng(0).random((size, *shape), dtype="float32")
