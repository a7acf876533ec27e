"""Weights on disk: safetensors files keyed by variable path, written whole or not at all, loaded strictly."""

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from capszoo.training.files import replacing


class WeightsError(ValueError):
    """A weight file that is unreadable or does not fit the model."""


def write_arrays(path, arrays: dict[str, np.ndarray], metadata: dict | None = None):
    """Writes arrays and JSON-able metadata under a temporary name, then renames: no reader sees half a file.

    Errors: `OSError` naming the file that could not be written; an earlier file of that name is then unchanged.
    """
    try:
        with replacing(path) as temporary:
            # Not np.ascontiguousarray: it turns scalars into arrays of one element.
            save_file(
                {name: np.asarray(array, order="C") for name, array in arrays.items()},
                temporary,
                metadata={key: json.dumps(value) for key, value in (metadata or {}).items()},
            )
            _sort_metadata(temporary)
            # The library makes files for their owner's eyes only; weights are for everybody who has the package.
            temporary.chmod(0o644)
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from error


def _sort_metadata(path):
    """Puts the metadata of a safetensors file in order: the library writes them in a random one each time.

    The header is JSON, padded with spaces; its length stands before it in eight bytes, lowest first.
    """
    with Path(path).open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if header["__metadata__"] and len(text) <= size:
            file.seek(8)
            file.write(text.ljust(size))


def read_arrays(path) -> tuple[dict[str, np.ndarray], dict]:
    """Arrays and metadata of a file. Errors: `WeightsError` for a missing, truncated or foreign file."""
    if not Path(path).is_file():
        raise WeightsError(f"no weight file at {path}")
    try:
        with safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            metadata = {key: json.loads(value) for key, value in (file.metadata() or {}).items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsError(
            f"{path} is not a readable safetensors file (truncated or damaged?): {error}"
        ) from error
    return arrays, metadata


def save_weights(model, path, dtype="float32", metadata: dict | None = None):
    """Saves all weights of `model`, floating ones as `dtype` (float32 or float16); not the states of random generators.

    Errors: `WeightsError` if a weight does not fit into float16.
    """
    arrays = {}
    # Not `model.variables`: Keras names the random states of dropout by what else the process has made.
    for variable in model.weights:
        array = np.asarray(variable)
        if np.issubdtype(array.dtype, np.floating):
            with np.errstate(over="ignore"):
                array = array.astype(dtype)
            if not np.isfinite(array).all():
                raise WeightsError(
                    f"{variable.path} has values that are not finite in {dtype}; nothing was written."
                )
        arrays[variable.path] = array
    write_arrays(path, arrays, metadata)


def start_weights(model, path) -> list[str]:
    """Gives `model` every weight of `path` that it has in the same shape; returns the paths of those left as they are.

    Errors: `WeightsError` for a file without one such weight; the model is then unchanged.
    """
    arrays, _ = read_arrays(path)
    shapes = {name: array.shape for name, array in arrays.items()}
    found = [weight for weight in model.weights if shapes.get(weight.path) == tuple(weight.shape)]
    if not found:
        raise WeightsError(
            f"{path} has no weight of the model. Received: {', '.join(sorted(arrays)[:3])} ..."
        )
    for weight in found:
        weight.assign(arrays[weight.path].astype(weight.dtype))
    taken = {weight.path for weight in found}
    return [weight.path for weight in model.weights if weight.path not in taken]


def load_weights(model, path, fresh=()):
    """Loads every weight of `model` from `path`, except those whose path starts with a prefix in `fresh`.

    Errors: `WeightsError` naming every missing, extra and misshapen variable; the model is then unchanged.
    """
    arrays, metadata = read_arrays(path)
    wanted = {v.path: v for v in model.weights if not v.path.startswith(tuple(fresh))}
    given = {name for name in arrays if not name.startswith(tuple(fresh))}
    problems = [f"missing: {name}" for name in sorted(wanted.keys() - given)]
    problems += [f"not in the model: {name}" for name in sorted(given - wanted.keys())]
    for name in sorted(given & wanted.keys()):
        expected, received = tuple(wanted[name].shape), arrays[name].shape
        if expected != received:
            problems.append(f"{name}: expected shape {expected}. Received: {received}")
    if problems:
        raise WeightsError(f"{path} does not fit the model:\n  " + "\n  ".join(problems))
    for name, variable in wanted.items():
        variable.assign(arrays[name].astype(variable.dtype))
    return metadata
