"""What of a bundle can be run, through the same interfaces as a server's or a phone's."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from capszoo.exporting.isolation import Alone
from capszoo.exporting.servers import environment
from capszoo.extras import extra


def artefact_files(bundle: Path) -> dict[str, list[Path]]:
    """The files of each artefact of a bundle, by the artefact's name in cards."""
    found = {"saved-model": [bundle / "saved_model.pb", *sorted((bundle / "variables").iterdir())]}
    for path in sorted((bundle / "litert").glob("*.tflite")):
        found["litert-" + path.name.split(".")[-2]] = [path]
    for path in sorted((bundle / "onnx").glob("*.onnx")):
        found["onnx"] = [path]
    return found


def checksum(files: list[Path]) -> str:
    """The SHA-256 of a file; of several, that of all their bytes, one file after the other: `cat FILES | sha256sum`."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def runners(bundle: Path) -> dict[str, Callable[[np.ndarray], dict[str, np.ndarray]]]:
    """Functions from raw images `[B, H, W, C]` to outputs, by the artefact's name in cards; all CPUs are used.

    A SavedModel answers from a process of its own with the variables that the bundle names, as in a server.

    Errors: `MissingExtra`; `RuntimeError` of a call, where that process fails.
    """
    makers = {"saved-model": lambda path: _saved_model(path.parent), "onnx": _onnx}
    files = {name: paths[0] for name, paths in artefact_files(bundle).items()}
    return {name: makers.get(name, _litert)(path) for name, path in files.items()}


def _saved_model(folder):
    return Alone("answer_script.py", folder, variables=environment(folder))


def _litert(path):
    with extra("export"):
        from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(str(path), num_threads=os.cpu_count()).get_signature_runner("serving_default")
    return lambda images: runner(images=images)


def _onnx(path):
    with extra("export"):
        from onnxruntime import InferenceSession

    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda images: dict(zip(names, session.run(names, {"images": images}), strict=True))
