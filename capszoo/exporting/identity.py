"""Which weights a bundle was exported from: one number of all of them, however they are stored."""

import hashlib
import json
from pathlib import Path

import numpy as np

from capszoo.exporting.verification import REPORT


def of_model(model) -> str:
    """SHA-256 of the names, shapes and numbers of all weights of `model`."""
    return _of_arrays({weight.path: np.asarray(weight) for weight in model.weights})


def of_file(path) -> str:
    """The same of the model that the weight file `path` makes. Errors: `WeightsError`."""
    from capszoo.training.weight_files import read_arrays

    return _of_arrays(read_arrays(path)[0])


def of_bundle(bundle) -> str | None:
    """The same of the model that `bundle` was exported from; None for a folder that does not say it."""
    try:
        report = json.loads((Path(bundle) / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return report.get("weights") if isinstance(report, dict) else None


def _of_arrays(arrays):
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        # Weights may be stored in half precision; a model has them in single.
        numbers = array.astype("float32") if np.issubdtype(array.dtype, np.floating) else array
        digest.update(f"{name} {numbers.dtype} {numbers.shape}\n".encode())
        digest.update(np.ascontiguousarray(numbers).tobytes())
    return digest.hexdigest()
