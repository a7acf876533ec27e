"""Bundles: one folder per version of a model, complete or absent."""

import contextlib
import errno
import json
import numbers
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from capszoo.data.checking import check_values, to_float
from capszoo.data.preprocessing import Preprocessing
from capszoo.exporting import identity
from capszoo.exporting.examples import fitting, write_examples
from capszoo.exporting.int8 import write_int8
from capszoo.exporting.isolation import run_alone
from capszoo.exporting.naming import checked_name
from capszoo.exporting.saved_model import BATCHING_PARAMETERS, Signatures, served, stage_names, write_warmup
from capszoo.exporting.servers import THREADS
from capszoo.exporting.verification import REPORT, listing, measure, require_agreement
from capszoo.extras import require
from capszoo.layers.routes import Routes
from capszoo.models.network import ImageModel

# What the processes that convert and reload import, and what int8 weights need besides.
CONVERSION = ("ai_edge_litert", "onnx", "tf2onnx", "onnxruntime")
QUANTISATION = ("ai_edge_quantizer",)


def export(
    model: keras.Model,
    directory: str | Path,
    *,
    name: str,
    version: int = 1,
    stages: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    image_shape: tuple[int, int, int] | None = None,
    examples: np.ndarray | None = None,
    int8: bool = False,
) -> dict:
    """Writes a model as a bundle that TensorFlow Serving, LiteRT, ONNX Runtime and Python run without capszoo.

        directory/<name>/<version>/
          saved_model.pb, variables/                     signatures serving_default, predict_bytes, features
          assets.extra/tf_serving_warmup_requests        a request per signature and batch size
          assets.extra/labels.txt                        class names, a line each, where they are known
          assets.extra/examples/                         pictures, and what the Keras model says of them
          batching_params.pbtxt                          for --enable_per_model_batching_parameters
          litert/<name>.float32.tflite, .float16.tflite  images -> as serving_default; operators of LiteRT only
          litert/<name>.int8.tflite                      the same with `int8`, see `capszoo.exporting.int8.write_int8`
          onnx/<name>.onnx                               the same in float32; standard operators only
          export.json                                    what this function returns

    where:
      model: a `keras.Model` of one input whose output is a dict, with `scores` and `poses` or what its architecture
        serves instead, see `capszoo.models.architecture`. Its `preset` and
        `preprocess`, which `capszoo.load` sets, give the defaults below.
      version: an integer of at least 1; a server takes the highest.
      stages: names of the layers whose outputs `features` returns, `<inner>/<layer>` for one of a model in the model;
        by default the architecture's.
      class_names: a name per class; by default those of the model.
      image_shape: `(H, W, C)` of raw images; by default the model's `raw_shape`, or else its input. Needed where
        `model.preprocess` changes that.
      examples: pictures `[n, H, W, C]`, uint8 or in [0, 1], on which deviations are measured; by default those of
        `capszoo.data.samples`, digits or toys, where the preset's images are like them, else four of drawn blobs.
      int8: also a LiteRT file with int8 weights outside of routing. What that costs in errors is not known here; for
        published presets the card says it.

    Everything is written under a hidden temporary name, reloaded in a process without capszoo, compared, and
    only then renamed; see `verify`.
    Returns, as JSON has it: `name`, `version`, `image_shape`, `class_names`, `stages`, `examples`,
    `deviations` (the largest absolute ones by artefact and output), `files` (SHA-256 and bytes), `environment`
    (variables with which a server answers faster), `weights` (SHA-256 of all numbers of the model), `libraries`.
    Errors: `FileExistsError` for a version that exists, naming the next free one; `OSError` naming the bundle that a
    disk has no room for; `ValueError` for arguments and models that cannot be exported; `MissingExtra`;
    `IntegrityError` for an artefact that does not say what the model says.
    """
    require("export", *CONVERSION, *(QUANTISATION if int8 else ()))
    version = _checked_version(version)
    target = Path(directory) / checked_name(name) / str(version)
    _refuse_existing(target)
    _check_model(model)
    preset = getattr(model, "preset", None)
    preprocess = getattr(model, "preprocess", None) or Preprocessing()
    image_shape = _image_shape(model, preprocess, image_shape)
    stages = _stages(model, preset, stages)
    class_names = _class_names(model, class_names)
    images, source = _examples(examples, preset, image_shape)

    Path(directory).mkdir(parents=True, exist_ok=True)
    with (
        _room_for(target),
        tempfile.TemporaryDirectory(dir=directory, prefix=f".{name}.{version}.") as folder,
    ):
        bundle = Path(folder) / "bundle"
        _write_artefacts(bundle, name, model, Signatures(model, preprocess, image_shape, stages), images)
        if int8:
            float32, target8 = (bundle / "litert" / f"{name}.{kind}.tflite" for kind in ("float32", "int8"))
            write_int8(float32, target8, model)
        if class_names:
            (bundle / "assets.extra" / "labels.txt").write_text(
                "".join(f"{c}\n" for c in class_names), encoding="utf-8"
            )
        measured = measure(bundle)
        require_agreement(bundle, measured["deviations"], target)
        report = {
            "name": name,
            "version": version,
            "image_shape": list(image_shape),
            "class_names": class_names,
            "stages": list(stages),
            "examples": {"count": len(images), "source": source},
            "deviations": measured["deviations"],
            "files": listing(bundle),
            "environment": _environment(model),
            "weights": identity.of_model(model),
            "libraries": {"keras": keras.__version__, **measured["libraries"]},
        }
        (bundle / REPORT).write_text(json.dumps(report, indent=2) + "\n")
        target.parent.mkdir(exist_ok=True)
        # Another export may have been faster; renaming refuses a folder that is not empty.
        _refuse_existing(target)
        os.rename(bundle, target)
    return report


@contextlib.contextmanager
def _room_for(target):
    """A full disk is one line, whichever library has met it."""
    try:
        yield
    except (OSError, RuntimeError, tf.errors.OpError) as error:
        for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            if os.strerror(number) in str(error):
                raise OSError(number, os.strerror(number), str(target)) from error
        raise


def _write_artefacts(bundle, name, model, signatures, images):
    """All files of the bundle but labels and report."""
    signatures.write(bundle)
    write_examples(bundle, images, model, signatures)
    write_warmup(bundle / "assets.extra" / "tf_serving_warmup_requests", name, signatures.image_shape)
    (bundle / "batching_params.pbtxt").write_text(BATCHING_PARAMETERS)
    unchecked = bundle.with_name("unchecked")
    signatures.write_unchecked(unchecked)
    (bundle / "litert").mkdir()
    files = [bundle / "litert" / f"{name}.{numbers}.tflite" for numbers in ("float32", "float16")]
    run_alone("convert_litert_script.py", unchecked, *files)
    (bundle / "onnx").mkdir()
    run_alone("convert_onnx_script.py", unchecked, bundle / "onnx" / f"{name}.onnx")


def _environment(model):
    """Environment variables for processes that run the SavedModel.

    Where routing goes through a batch image by image, several images are under way at a time and each operation is
    small: threads that share one operation only wait for each other.
    """
    routes = [layer for layer in model._flatten_layers() if isinstance(layer, Routes)]
    by_image = any(getattr(layer, "routes_by_image", False) for layer in routes)
    return {THREADS: "1"} if by_image else {}


def _checked_version(version):
    # Servers read it as an integer of 64 bits.
    whole = isinstance(version, numbers.Integral) and not isinstance(version, bool)
    if not whole or not 1 <= version < 2**63:
        raise ValueError(f"version must be an integer from 1 to 2^63 - 1. Received: {version!r}")
    return int(version)


def _refuse_existing(target):
    for folder in target.parents:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{target} cannot be made: {folder} is no folder.")
    if target.exists():
        taken = [int(path.name) for path in target.parent.iterdir() if path.name.isdecimal()]
        raise FileExistsError(
            f"version {target.name} of {target.parent.name!r} exists and is never overwritten: {target}. "
            f"The next free version is {max(taken) + 1}."
        )


def _check_model(model):
    if keras.backend.backend() != "tensorflow":
        raise ValueError(f"exporting needs KERAS_BACKEND=tensorflow. Received: {keras.backend.backend()}")
    if not isinstance(model, keras.Model):
        raise ValueError(f"a keras.Model is needed, see capszoo.load. Received: {model!r}")
    if isinstance(model, ImageModel) and model.architecture is None and model.preprocess is None:
        raise ValueError(
            f"{model.name!r} has lost what its images are, as a clone of Keras has: copy.deepcopy(model) keeps that, "
            "or set clone.preprocess = model.preprocess."
        )
    # A model that is not built, or that is no graph of layers, has none.
    shapes = [tuple(tensor.shape) for tensor in getattr(model, "inputs", None) or ()]
    if len(shapes) != 1 or len(shapes[0]) != 4 or None in shapes[0][1:] or shapes[0][-1] not in (1, 2, 3):
        raise ValueError(f"a model of one input [B, H, W, 1 to 3 channels] is needed. Received: {shapes}")
    if not isinstance(model.output, dict) or not set(served(model)) <= set(model.output):
        raise ValueError(f"a model with outputs {served(model)} is needed. Received: {model.output}")
    half = sorted({layer.compute_dtype for layer in model.layers} - {"float32"})
    if half:
        raise ValueError(f"a model of the dtype policy 'float32' is needed. Received layers in: {half}")


def _image_shape(model, preprocess, image_shape):
    """Shape `(H, W, C)` of raw images, which `preprocess` turns into what the model takes."""
    if image_shape is None:
        image_shape = getattr(model, "raw_shape", None)
        if image_shape is None and (preprocess.resize or preprocess.crop):
            raise ValueError("image_shape of raw images is needed: this model's preprocessing changes it.")
        image_shape = image_shape or model.input_shape[1:]
    image_shape = tuple(map(int, image_shape))
    made = preprocess(keras.KerasTensor((None, *image_shape))).shape[1:]
    if tuple(made) != tuple(model.input_shape[1:]):
        raise ValueError(
            f"preprocessing must make images of {tuple(model.input_shape[1:])}. "
            f"Received image_shape {image_shape}, of which it makes {tuple(made)}"
        )
    return image_shape


def _stages(model, preset, stages):
    if stages is None and preset is None:
        raise ValueError("stages is needed for a model without a preset: names of layers.")
    if isinstance(stages, str):
        raise ValueError(f"stages must be a sequence of names of layers. Received: {stages!r}")
    stages = tuple(preset.recipe.model.stages if stages is None else stages)
    names = stage_names(model)
    unknown = sorted(set(stages) - set(names))
    if unknown or not stages:
        raise ValueError(f"stages must be names of layers, of {names}. Received: {unknown or stages}")
    return stages


def _class_names(model, class_names):
    count = model.output["scores"].shape[-1] if "scores" in model.output else 0
    if class_names is not None and (isinstance(class_names, str) or len(class_names) != count):
        raise ValueError(f"{count} class names are needed. Received: {class_names!r}")
    known = getattr(model, "class_names", ()) if class_names is None else class_names
    names = [str(name) for name in known]
    # Each is a line of labels.txt.
    if broken := [name for name in names if len(name.splitlines()) != 1]:
        raise ValueError(f"class names must be one line each. Received: {broken}")
    return names or None


def _examples(examples, preset, image_shape):
    """Pictures `[n, H, W, C]`, checked, and where they are from."""
    if examples is None:
        return fitting(preset.dataset if preset else None, image_shape)
    images = np.asarray(examples)
    if images.shape[1:] != image_shape or not len(images):
        raise ValueError(f"examples must be images of {image_shape}, one or more. Received: {images.shape}")
    check_values(images)
    return to_float(images), "given"
