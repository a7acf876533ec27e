"""Weights on disk: safetensors files keyed by variable path, written whole or not at all, loaded strictly.

A file is judged by its header, against the model's weights and the file's own size, before any data are read; then the
numbers are, before any is given to the model. An array in eight bits lies beside its scales, an array of its name and
":scales"; whoever reads sees one array of float32.
"""

import contextlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from capszoo.training.channels import for_channels, image_kernels, is_for_channels
from capszoo.training.eight_bits import LARGE, from_eight_bits, scales_shape, to_eight_bits
from capszoo.training.files import replacing

# NumPy's names of the types in headers that weights, counters and checkpoints have.
TYPES = {"F16": "float16", "F32": "float32", "F64": "float64", "BOOL": "bool"}
TYPES |= {f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
TYPES |= {f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)}
SCALES = ":scales"


class Stored(NamedTuple):
    """Shape and type of an array in a file; a type that is none of `TYPES` has the name the header gives it."""

    shape: tuple[int, ...]
    dtype: str


class WeightsError(ValueError):
    """A weight file that is unreadable or does not fit the model."""


class UnfitWeights(WeightsError):
    """Weights that can be read and are of no use: none of a file's fits the model, or they are not finite."""


def write_arrays(path, arrays: dict[str, np.ndarray], metadata: dict | None = None):
    """Writes arrays and JSON-able metadata under a temporary name, then renames: no reader sees half a file.

    Errors: `OSError` naming the file that could not be written; an earlier file of that name is then unchanged.
    """
    # Not np.ascontiguousarray: it turns scalars into arrays of one element. Not the library's `save_file`: that has a
    # temporary file of its own, which would stay where the process is killed.
    data = save(
        {name: np.asarray(array, order="C") for name, array in arrays.items()},
        metadata={key: json.dumps(value) for key, value in (metadata or {}).items()},
    )
    with replacing(path) as temporary:
        temporary.write_bytes(_sorted_metadata(data))


def _sorted_metadata(data):
    """The bytes of a safetensors file with its metadata in order: the library writes them in a random one each time.

    The header is JSON, padded with spaces; its length stands before it in eight bytes, lowest first.
    """
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    if not header["__metadata__"] or len(text) > size:
        return data
    return data[:8] + text.ljust(size) + data[8 + size :]


def read_header(path) -> tuple[dict[str, Stored], dict]:
    """What a file says it holds, and its metadata, without reading any data; it has been held against the file's size.

    Errors: `WeightsError` for a missing, truncated or foreign file.
    """
    with _opened(path) as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        metadata = {key: _json_or_text(value) for key, value in (file.metadata() or {}).items()}
        stored = {
            name: Stored(tuple(part.get_shape()), TYPES.get(part.get_dtype(), part.get_dtype()))
            for name, part in parts.items()
        }
    for name in _in_eight_bits(stored):
        stored[name] = Stored(stored[name].shape, "float32")
        del stored[name + SCALES]
    return stored, metadata


def _json_or_text(value):
    """Metadata that capszoo writes are JSON, those of other tools plain text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _in_eight_bits(stored):
    """The names of those arrays that have scales."""
    return [
        name
        for name, (shape, dtype) in stored.items()
        if dtype == "int8" and stored.get(name + SCALES) == Stored(scales_shape(shape), "float32")
    ]


def read_arrays(path, names=None) -> tuple[dict[str, np.ndarray], dict]:
    """Arrays of a file, all or those of `names`, and its metadata.

    Errors: `WeightsError` for a missing, truncated or foreign file, and for types of numbers that NumPy does not have.
    """
    stored, metadata = read_header(path)
    names = list(stored if names is None else names)
    foreign = [f"{name} ({stored[name].dtype})" for name in names if stored[name].dtype not in TYPES.values()]
    if foreign:
        raise WeightsError(f"{path} has numbers of types that are not read here: {', '.join(foreign)}")
    with _opened(path) as file:
        arrays = {name: file.get_tensor(name) for name in names}
        for name in names:
            if arrays[name].dtype != stored[name].dtype:
                arrays[name] = from_eight_bits(arrays[name], file.get_tensor(name + SCALES))
    return arrays, metadata


@contextlib.contextmanager
def _opened(path):
    """A safetensors file; whatever is wrong with it is a `WeightsError`."""
    if not Path(path).is_file():
        raise WeightsError(f"no weight file at {path}")
    try:
        with safe_open(path, framework="np") as file:
            yield file
    except BaseException as error:
        # Where memory ends the library panics, which is no `Exception`.
        known = isinstance(error, (SafetensorError, OSError, ValueError, RecursionError, MemoryError))
        if not known and type(error).__name__ != "PanicException":
            raise
        raise WeightsError(
            f"{path} is not a readable safetensors file (truncated or damaged?): {error}"
        ) from error


def save_weights(model, path, dtype="float32", metadata: dict | None = None):
    """Saves all weights of `model`, floating ones as `dtype`; not the states of random generators.

    where:
      dtype: "float32", "float16", or "int8", see `eight_bits`; then arrays of fewer than 65,536 numbers are float16.

    Errors: `WeightsError` if a weight does not fit into float16.
    """
    arrays = {}
    real = "float16" if dtype == "int8" else dtype
    # Not `model.variables`: Keras names the random states of dropout by what else the process has made.
    for variable in model.weights:
        array = np.asarray(variable)
        if np.issubdtype(array.dtype, np.floating):
            with np.errstate(over="ignore"):
                rounded = array.astype(real)
            if not np.isfinite(rounded).all():
                raise UnfitWeights(
                    f"{variable.path} has values that are not finite in {real}; nothing was written."
                )
            if dtype == "int8" and array.size >= LARGE:
                array, arrays[variable.path + SCALES] = to_eight_bits(array)
            else:
                array = rounded
        arrays[variable.path] = array
    write_arrays(path, arrays, metadata)


def start_weights(model, path, fresh=()) -> list[str]:
    """Gives `model` every weight of `path` that it can take; returns the paths of those left as they are.

    A weight of the same shape is taken, and a kernel for images of another number of channels, see `channels`.

    where:
      fresh: prefixes of the paths of weights that are left as they are in any case.

    Errors: `WeightsError` for a file without one such weight, and for numbers that are not finite; the model is then
    unchanged.
    """
    found = given_weights(model, path, fresh)
    if not found:
        stored, _ = read_header(path)
        raise UnfitWeights(
            f"{path} has no weight of the model. Received: {', '.join(sorted(stored)[:3])} ..."
        )
    _assign(path, found)
    return [weight.path for weight in model.weights if weight.path not in found]


def given_weights(model, path, fresh=()) -> dict:
    """Those weights of `model`, by their paths, that `start_weights` takes from a file, by its header."""
    stored, _ = read_header(path)
    kernels = image_kernels(model)
    found = {}
    for weight in model.weights:
        if weight.path in stored and not weight.path.startswith(tuple(fresh)):
            array = stored[weight.path]
            if weight.path in kernels and is_for_channels(array.shape, tuple(weight.shape)):
                array = array._replace(shape=tuple(weight.shape))
            if not _misfit(array, weight):
                found[weight.path] = weight
    return found


def load_weights(model, path, fresh=()):
    """Loads every weight of `model` from `path`, except those whose path starts with a prefix in `fresh`.

    Errors: `WeightsError` naming every variable that is missing, extra, misshapen, of another kind of numbers or not
    finite; the model is then unchanged.
    """
    stored, metadata = read_header(path)
    wanted = {v.path: v for v in model.weights if not v.path.startswith(tuple(fresh))}
    given = {name for name in stored if not name.startswith(tuple(fresh))}
    problems = [f"missing: {name}" for name in sorted(wanted.keys() - given)]
    problems += [f"not in the model: {name}" for name in sorted(given - wanted.keys())]
    misfits = {name: _misfit(stored[name], wanted[name]) for name in sorted(given & wanted.keys())}
    problems += [f"{name}: {misfit}" for name, misfit in misfits.items() if misfit]
    if problems:
        raise WeightsError(f"{path} does not fit the model:\n  " + "\n  ".join(problems))
    _assign(path, wanted)
    return metadata


def _misfit(stored, variable):
    """Why an array of a file cannot be `variable`, or None. Numbers may be wider or narrower, but of no other kind."""
    shape, kind = tuple(variable.shape), _kind(variable.dtype)
    if stored.shape != shape:
        return f"expected shape {shape}. Received: {stored.shape}"
    if stored.dtype not in TYPES.values() or _kind(stored.dtype) != kind:
        return f"expected {kind} numbers. Received: {stored.dtype}"
    return None


def _kind(dtype):
    return "bool" if dtype == "bool" else "whole" if "int" in dtype else "real"


def _assign(path, variables):
    """Gives variables, by their names in the file, their values; all of them or, after an error, none."""
    arrays, _ = read_arrays(path, variables)
    values, problems = {}, []
    for name, variable in variables.items():
        # What is too large becomes infinite, and is found below.
        with np.errstate(over="ignore"):
            values[name] = arrays[name].astype(variable.dtype)
        if values[name].shape != tuple(variable.shape):
            values[name] = for_channels(values[name], variable.shape[2])
        if _kind(variable.dtype) == "real":
            if not np.isfinite(values[name]).all():
                problems.append(f"{name}: values that are not finite in {variable.dtype}")
        elif not np.array_equal(values[name], arrays[name]):
            problems.append(f"{name}: values that do not fit into {variable.dtype}")
    if problems:
        raise WeightsError(f"{path} holds no weights:\n  " + "\n  ".join(problems))
    for name, variable in variables.items():
        variable.assign(values[name])
