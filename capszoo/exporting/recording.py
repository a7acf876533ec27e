"""The test error of a published bundle, measured and written into its preset's card."""

import dataclasses
import json
from pathlib import Path

import numpy as np

from capszoo.exporting.artefacts import artefact_files, checksum, runners
from capszoo.exporting.verification import REPORT, listed, verify
from capszoo.models.architecture import Classifies
from capszoo.progress import QUIET
from capszoo.protocols import evaluate
from capszoo.training.files import write_text
from capszoo.zoo import locating
from capszoo.zoo.card import ExportedFormat
from capszoo.zoo.integrity import IntegrityError
from capszoo.zoo.replacing import update_card

# Images at a time. LiteRT's, as on a phone, takes one: the interpreter allocates anew for every other batch size.
BATCH = {"saved-model": 250, "onnx": 32}
INT8 = "litert-int8"
# Of the test images; where int8 weights get so many more wrong, they are not offered.
LARGEST_LOSS = 0.001
# With which no artefact is the network any more.
BROKEN = 0.01


def record_exports(preset, bundle, progress=QUIET, speeds=None):
    """Verifies `bundle`, measures test errors of its artefacts, and writes both into the card of `preset`.

    where:
      preset: a `capszoo.zoo.presets.Preset` with a card.
      bundle: the folder of one version, as `export` writes it, of that preset.
      progress: says a line for each artefact.
      speeds: how fast the artefacts are, see `capszoo.benchmarking.compare_bundle`; written into the card too.

    Artefacts take raw pictures, so they are measured on the data set before its preprocessing. Where a data set
    rounds what it resizes, as smallNORB does, an image on the border between two classes may change sides. Networks
    without classes have no errors to measure.

    A file of int8 weights that errs on 0.1 points more than the SavedModel, or whose errors cannot be measured, is
    taken out of the bundle.

    Returns the new card.
    Errors: `ValueError` for a preset without published weights and for a run; `IntegrityError` from `verify`, and for
    an artefact that errs on a point more than the SavedModel; `DataNotFound`.
    """
    if preset.card is None or preset.outside:
        raise ValueError(
            f"a preset with published weights is needed. Received: {preset.outside or preset.name}"
        )
    bundle = Path(bundle)
    _finish_withdrawal(bundle)
    deviations = verify(bundle)
    recipe = dataclasses.replace(preset.recipe, data=preset.recipe.data.raw)
    exports = {}
    files = artefact_files(bundle)
    for name, run in runners(bundle).items():
        size = sum(path.stat().st_size for path in files[name])
        differs = deviations["serving_default" if name == "saved-model" else name]
        wrong = n = None
        if recipe.model.has(Classifies):
            measured = evaluate(_Artefact(run, BATCH.get(name, 1)), recipe)
            wrong, n = measured.wrong, measured.n
        speed = (speeds or {}).get(name, {})
        exports[name] = ExportedFormat(size, differs, wrong, n, speed, checksum(files[name]))
        progress.say(f"{name}: {exports[name].errors()}")
        if name != INT8:
            _require_no_worse(name, exports[name], exports["saved-model"])
    if INT8 in exports and not _loses_little(exports[INT8], exports["saved-model"]):
        progress.say(f"{INT8} is not offered")
        _withdraw(bundle, INT8)
        del exports[INT8]
    return update_card(locating.weights_folder() / preset.name, preset.card.files, exports=exports)


def _require_no_worse(name, artefact, reference):
    """Errors: `IntegrityError` for an artefact that errs on a point more than the SavedModel."""
    if artefact.n and artefact.wrong - reference.wrong >= BROKEN * artefact.n:
        raise IntegrityError(
            f"{name} errs on {artefact.errors()} of the test images, the SavedModel on {reference.errors()}"
        )


def _loses_little(artefact, reference):
    return bool(artefact.n) and artefact.wrong - reference.wrong < LARGEST_LOSS * artefact.n


def _withdraw(bundle, artefact):
    """Takes an artefact out of the report of the bundle, and then out of the bundle."""
    report = json.loads((bundle / REPORT).read_text(encoding="utf-8"))
    del report["deviations"][artefact]
    for path in artefact_files(bundle)[artefact]:
        del report["files"][path.relative_to(bundle).as_posix()]
    write_text(bundle / REPORT, json.dumps(report, indent=2) + "\n")
    _finish_withdrawal(bundle)


def _finish_withdrawal(bundle):
    """Removes int8 weights that the report does not list, such as a recording that was killed leaves behind."""
    known = listed(bundle)
    for path in artefact_files(bundle).get(INT8, ()):
        if path.relative_to(bundle).as_posix() not in known:
            path.unlink()


class _Artefact:
    """Something exported, with the one method of a Keras model that protocols use."""

    def __init__(self, function, batch):
        self.function, self.batch = function, batch

    def predict_on_batch(self, images):
        parts = [self.function(images[i : i + self.batch]) for i in range(0, len(images), self.batch)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
