"""The proof that a bundle says what its model said."""

import json
import tempfile
from pathlib import Path

import numpy as np

from capszoo.exporting.isolation import run_alone
from capszoo.zoo.integrity import IntegrityError, sha256_of, verify_file

EXAMPLES = "assets.extra/examples/examples.npz"
ROUNDING = "assets.extra/examples/rounding.json"
REPORT = "export.json"

# Largest deviation from the Keras model, as a share of the output's largest value or of one, if that is more.
TOLERANCE = 1e-5
# EM routing divides by variances that may be tiny: there the last bit of the pixels alone can move poses further than
# that, and every operation of an artefact may round in its own way. So many times that movement is allowed.
ROUNDINGS = 10
# Rounding a weight to float16 changes it by up to 2^-11. If all roundings of a layer agreed, two convolutions
# would be off by 2 such steps, the primary squash could double that, votes add 1, and the second squash
# doubles again: 10. That coefficients depend on votes is not counted; in practice most roundings cancel.
FLOAT16_TOLERANCE = 10 * 2.0**-11
# By the same count, of roundings by up to 2^-8 of a channel's largest weight and, as many, of inputs.
INT8_TOLERANCE = 20 * 2.0**-8
# By artefact, where it is not `TOLERANCE`.
TOLERANCES = {"litert-float16": FLOAT16_TOLERANCE, "litert-int8": INT8_TOLERANCE}


def verify(bundle) -> dict:
    """Reloads a bundle in a process without capszoo and compares every artefact with the stored outputs.

    where:
      bundle: the folder of one version, `directory/<name>/<version>`.

    Returns the largest absolute deviations, e.g. {"serving_default": {"scores": 1e-8, "poses": 1e-8}, ...}.
    Every example counts twice, alone and in a batch. Allowed is 1e-5, for float16 weights 4.9e-3, for int8 weights
    0.078, times the output's largest value where that is above one; or, where that is more, ten times what a change of
    the last bit of the pixels does to the Keras model.
    Errors: `FileNotFoundError` for a folder that is no bundle; `IntegrityError` for a file that is missing,
    altered or not listed, and for an artefact that deviates too far; `RuntimeError` for one that fails.
    """
    bundle = Path(bundle)
    require_whole(bundle)
    deviations = measure(bundle)["deviations"]
    require_agreement(bundle, deviations)
    return deviations


def listed(bundle) -> dict:
    """SHA-256 and size in bytes of each file that the report of `bundle` lists, by path. Errors: as `verify`."""
    if not (bundle / REPORT).is_file():
        raise FileNotFoundError(
            f"{bundle} is no bundle: expected a version folder with {REPORT}, as `capszoo export` writes it."
        )
    try:
        expected = json.loads((bundle / REPORT).read_text(encoding="utf-8"))["files"]
        return {name: (file["sha256"], file["bytes"]) for name, file in expected.items()}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{bundle / REPORT} is damaged: {error}") from error


def require_whole(bundle):
    """Errors: those of `verify`, but for what artefacts say."""
    bundle = Path(bundle)
    known = listed(bundle)
    present = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()} - {REPORT}
    for name in sorted(present ^ set(known)):
        state = "is missing" if name in known else f"is not listed in {REPORT}"
        raise IntegrityError(f"{bundle}: {name} {state}")
    for name, (sha256, size) in known.items():
        verify_file(bundle / name, sha256, size)


def listing(bundle) -> dict:
    """SHA-256 and size in bytes of every file of the bundle but the report, by path."""
    paths = sorted(path for path in bundle.rglob("*") if path.is_file())
    return {
        path.relative_to(bundle).as_posix(): {"sha256": sha256_of(path), "bytes": path.stat().st_size}
        for path in paths
        if path != bundle / REPORT
    }


def measure(bundle) -> dict:
    """`{"deviations": ..., "libraries": ...}` as a process without capszoo finds them."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        run_alone("reload_script.py", bundle, report)
        return json.loads(report.read_text())


def require_agreement(bundle, deviations, named=None):
    """Errors: `IntegrityError` naming the artefact and output that deviate further than allowed.

    where:
      named: what the bundle is called in errors, where it lies under another name for the moment.
    """
    with np.load(bundle / EXAMPLES, allow_pickle=False) as stored:
        largest = {key: float(np.abs(stored[key]).max()) for key in stored}
    rounding = json.loads((bundle / ROUNDING).read_text(encoding="utf-8"))
    for artefact, outputs in deviations.items():
        tolerance = TOLERANCES.get(artefact, TOLERANCE)
        for output, deviation in outputs.items():
            # A stage may have the name of an output.
            key = f"features/{output}" if artefact == "features" else output
            allowed = max(tolerance * max(1.0, largest[key]), ROUNDINGS * rounding[key])
            # Written so that NaN fails.
            if not deviation <= allowed:
                raise IntegrityError(
                    f"{artefact} of {named or bundle}: {output} deviate by {deviation:.2g} from the Keras model; "
                    f"at most {allowed:.2g} is allowed."
                    + (" Without int8 the other files are made." if artefact == "litert-int8" else "")
                )
