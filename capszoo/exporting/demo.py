"""What the demo page of the documentation runs: `python -m capszoo.exporting.demo PRESET FOLDER [PICTURE ...]`."""

import argparse
import json
import math
import os
import shutil
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from keras import ops

from capszoo.data.images import read_image
from capszoo.data.preprocessing import Preprocessing
from capszoo.exporting.examples import drawn
from capszoo.exporting.isolation import run_alone
from capszoo.exporting.verification import FLOAT16_TOLERANCE
from capszoo.layers.routes import routed_layers
from capszoo.models.architecture import Classifies, DecodesPoses, architecture_of
from capszoo.routing.cpu import host_calls
from capszoo.routing.tracing import for_processors
from capszoo.visualize import child_centres
from capszoo.visualize.activity import activations_of
from capszoo.visualize.over_image import sees_whole_grid
from capszoo.zoo.integrity import IntegrityError, sha256_of
from capszoo.zoo.loading import load

DESCRIPTION = "demo.json"
# Parameters of a network whose file is small in float32 too; routing's poses are touchy.
SMALL = 1_000_000


class DemoFunctions:
    """The two functions that the page runs, each of one image.

        network   images -> seen, scores, poses, coefficients, activations
        decoder   poses, selection -> reconstruction; where the architecture decodes poses

    where:
      images: float32 `[1, H, W, C]` in [0, 1], raw; `model.preprocess` is inside.
      seen: what it makes of them, which the network takes; only where that is another image.
      scores, poses: `[1, O]` and `[1, O, D]` (or `[1, O, P, P]`), as the model gives them.
      coefficients: `[1, I, O]`, c_ij of the last iteration of the last routing.
      activations: `[1, I]`, of its children: where they have none of their own, the lengths of their poses. The
        children lie as `[rows, columns, types]`.
      selection: `[1, 1, O]`, what each pose is multiplied with; one-hot where one capsule is decoded.
      reconstruction: `[1, H, W, C]` in [0, 1].

    Errors: `ConfigError` for a model without classes; `ValueError` for one whose class capsules are not routed from
    capsules on a grid.
    """

    def __init__(self, model):
        self.model = model
        self.architecture = architecture_of(model, Classifies, "the demo")
        self.layer = (routed_layers(model) or [None])[-1]
        children = self.layer and self.layer.input
        poses = keras.tree.flatten(children)[0] if self.layer else None
        self.grid = tuple(getattr(poses, "shape", ()))[1:4]
        # A grid of one position has nothing to show a map of.
        if not self.layer or 1 in self.grid[:2] or not sees_whole_grid(self.layer, self._coefficients()):
            raise ValueError(
                "class capsules that are routed from capsules on a grid [B, H, W, types, ...] are needed. "
                f"Received: {model.name!r}, of the grid {self.grid}"
            )
        self.preprocess = model.preprocess or Preprocessing()
        self._changes = self.preprocess.resize or self.preprocess.crop or self.preprocess.standardise
        self.image_shape = tuple(model.raw_shape or model.input_shape[1:])
        self._below = keras.Model(model.input, children)
        # Of the capsules that come with the coefficients, so that the graph routes once.
        paired = isinstance(self.layer.output, (tuple, list))
        self._above = None if paired else keras.Model(self.layer.output, model.output["scores"])

    def _coefficients(self):
        """A symbol of those of one iteration."""
        return self.layer.compute_output_spec(self.layer.input, return_history=True)[-1][0]

    def network(self, images):
        """The dict of `scores`, `poses`, `coefficients`, `activations`, and of `seen` where it is there."""
        seen = self.preprocess(images)
        children = self._below(seen, training=False)
        parents, history = self.layer(children, return_history=True)
        poses, scores = parents if self._above is None else (parents, self._above(parents))
        # An output that is the input itself comes back as something else from LiteRT in a browser.
        changed = {"seen": seen} if self._changes else {}
        return {
            **changed,
            "scores": scores,
            "poses": poses,
            "coefficients": history[-1],
            # [B, H, W, types] -> [B, I]
            "activations": ops.reshape(activations_of(children), (-1, math.prod(self.grid))),
        }

    def decoder(self, poses, selection):
        """The dict of `reconstruction`."""
        images = self.architecture.decode(self.model, poses, selection)
        return {"reconstruction": ops.reshape(images, (1, *self.model.input_shape[1:]))}

    @property
    def inputs(self):
        """By function the shapes of its inputs, by name."""
        inputs = {"network": {"images": (1, *self.image_shape)}}
        if self.architecture.has(DecodesPoses):
            poses = (1, *self.model.output["poses"].shape[1:])
            inputs["decoder"] = {"poses": poses, "selection": (1, 1, poses[1])}
        return inputs


def write_demo(model, folder, pictures=()) -> dict:
    """Writes what the demo page needs of `model` into `folder`, which is made or replaced.

        network.float16.tflite, decoder.float16.tflite    see `DemoFunctions`; operators of LiteRT only, batch 1
          (`.float32` where the network has less than a million parameters)
        pictures/                                         the given ones, to choose from
        demo.json                                         what this function returns

    where:
      model: a preset with weights, as `capszoo.load` gives it.
      pictures: paths of images of the model's shape, whose names begin with their class, as `3_a.png`; a stereo pair
        has its left view in the left half.

    Before anything is visible, both files are run by LiteRT on `pictures` (or on drawn blobs) and compared with the
    Keras model.
    Returns, as JSON has it: `preset`, `title`, `paper`, `measured`, `class_names`, `image_shape`, `seen_shape`, `grid`
    (rows, columns, types of the children), `centres` (of their receptive fields, in pixels of what is seen, by axis),
    `files` (SHA-256 and bytes), `deviations` (the largest absolute ones by output), `pictures` (their paths).
    Errors: see `DemoFunctions`; `ValueError` for a model without a card and for two pictures of one name;
    `FileExistsError` for a folder with anything but a demo in it; `IntegrityError` for a file that deviates from the
    Keras model by more than float16 weights explain.
    """
    folder, functions = Path(folder), DemoFunctions(model)
    if getattr(model.preset, "card", None) is None:
        raise ValueError(f"a preset with weights and a card is needed. Received: {model.name!r}")
    if folder.exists() and any(folder.iterdir()) and not (folder / DESCRIPTION).is_file():
        raise FileExistsError(
            f"a new folder, or one with a demo to be replaced, is needed. Received: {folder}"
        )
    if len({Path(path).name for path in pictures}) < len(pictures):
        raise ValueError(f"pictures of different names are needed. Received: {', '.join(map(str, pictures))}")
    images = [read_image(path, functions.image_shape) for path in pictures]
    images = np.stack(images) if images else drawn(functions.image_shape)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        made = Path(temporary) / "made"
        (made / "pictures").mkdir(parents=True)
        files = {name: _convert(functions, name, made) for name in functions.inputs}
        deviations = deviations_of(functions, files, images)
        require_agreement(deviations)
        for path in pictures:
            shutil.copy(path, made / "pictures")
        report = _facts(functions) | {
            "files": {
                name: {"name": path.name, "sha256": sha256_of(path), "bytes": path.stat().st_size}
                for name, path in files.items()
            },
            "deviations": deviations,
            "pictures": [f"pictures/{Path(path).name}" for path in pictures],
        }
        (made / DESCRIPTION).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        if folder.exists():
            os.rename(folder, Path(temporary) / "former")
        os.rename(made, folder)
    return report


def deviations_of(functions, files, images) -> dict:
    """The largest absolute deviations of the `files` from the Keras model, by output, over `images[B, H, W, C]`."""
    runners = {name: Interpreter(str(path)).get_signature_runner() for name, path in files.items()}
    expected = functions.network(images) | functions.model(functions.preprocess(images), training=False)
    largest = {}
    for number, image in enumerate(images):
        received = runners["network"](images=image[None])
        if "decoder" in runners:
            # The decoder by itself: of the poses that Keras has found.
            poses = np.asarray(expected["poses"][number : number + 1])
            selection = np.eye(poses.shape[1], dtype="float32")[
                [[int(np.argmax(expected["scores"][number]))]]
            ]
            received |= runners["decoder"](poses=poses, selection=selection)
        for name, values in received.items():
            difference = np.abs(values[0] - np.asarray(expected[name][number])).max()
            # NaN would be lost in a maximum of Python's.
            largest[name] = float(np.maximum(difference, largest.get(name, 0.0)))
    return largest


def _convert(functions, name, folder):
    """The .tflite file of one function, with float16 weights where they are many."""
    specs = [tf.TensorSpec(shape, tf.float32, name=key) for key, shape in functions.inputs[name].items()]
    archive = keras.export.ExportArchive()
    # The archive finds the weights that it writes in the model.
    archive.track(functions.model)
    with host_calls(False), for_processors():
        archive.add_endpoint("serving_default", getattr(functions, name), specs)
        saved = folder.with_name(name)
        archive.write_out(str(saved), verbose=False)
    numbers = "float16" if functions.model.count_params() > SMALL else "float32"
    path = folder / f"{name}.{numbers}.tflite"
    run_alone("convert_litert_script.py", saved, path)
    return path


def require_agreement(deviations):
    """Errors: `IntegrityError` for an output that deviates by more than float16 weights explain.

    The allowed deviation is absolute: outputs of vector capsules are at most about 1. Poses of matrices
    may be some times that, of networks that are small and have float32 files.
    """
    for name, deviation in deviations.items():
        # Written so that NaN fails.
        if not deviation <= FLOAT16_TOLERANCE:
            raise IntegrityError(
                f"{name} of the demo deviate by {deviation:.2g} from the Keras model; "
                f"at most {FLOAT16_TOLERANCE:.2g} is allowed."
            )


def _facts(functions):
    """What the page says of the model, from its card and its layers."""
    model = functions.model
    card = model.preset.card
    rows, columns = child_centres(model)
    return {
        "preset": card.name,
        "title": card.title,
        "paper": card.paper,
        "measured": card.metrics[0].sentence(),
        "class_names": [str(name) for name in model.class_names],
        "image_shape": list(functions.image_shape),
        "seen_shape": list(model.input_shape[1:]),
        "grid": list(functions.grid),
        "centres": {"rows": rows.tolist(), "columns": columns.tolist()},
    }


def main():
    """Writes the demo of a preset and says how far it deviates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset")
    parser.add_argument("folder", type=Path)
    parser.add_argument("pictures", nargs="*", type=Path)
    arguments = parser.parse_args()
    report = write_demo(load(arguments.preset), arguments.folder, arguments.pictures)
    size = sum(file["bytes"] for file in report["files"].values())
    print(f"written: {arguments.folder}, {size / 1e6:.1f} MB, deviations {report['deviations']}")


if __name__ == "__main__":
    main()
