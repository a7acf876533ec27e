"""From a preset's name to its model, untrained or with its weights."""

import dataclasses
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from capszoo.zoo import recipes
from capszoo.zoo.integrity import IntegrityError
from capszoo.zoo.listing import list_models
from capszoo.zoo.locating import CHECK, WEIGHTS, WeightsNotFound, find_file
from capszoo.zoo.presets import get_preset

if TYPE_CHECKING:
    import keras

# Largest deviation from the stored outputs, as a share of the largest of them, that another machine's arithmetic or
# another backend may cause: poses have no unit, and some nets' are below 0.1, others' near 10.
CHECK_TOLERANCE = 1e-4


def create(name: str, *, num_classes: int | None = None, overrides: Iterable[str] = ()) -> "keras.Model":
    """The untrained model of a preset, a `keras.Model` with `.preset` and `.preprocess`.

    where:
      num_classes: another number of classes than the data set's, at least 2, where the architecture classifies.
      overrides: `section.key=value` texts laid over the recipe.

    Errors: `ConfigError` for an unknown preset or override and for another `num_classes`.

    >>> create("matrix_em_mnist", num_classes=7, overrides=["model.num_iterations=1"]).output["scores"].shape
    (None, 7)
    """
    recipe = recipes.read_recipe(name, overrides)
    # Without the card: it is about the published weights, which this model does not have.
    return _equip(recipe.build(num_classes), dataclasses.replace(get_preset(name), card=None), recipe)


def load(name: str, *, num_classes: int | None = None, weights: str | Path | None = None) -> "keras.Model":
    """The pretrained model of a preset, a `keras.Model` with `.preset` and `.preprocess`.

    where:
      name: a preset, see `list_models(pretrained=True)`.
      num_classes: another number of classes, at least 2, where the architecture classifies. The class capsules, and
        what is sized by them, are then new and untrained; everything below keeps its weights.
      weights: a safetensors file to load instead of the published one.

    Weights are looked for in `CAPSZOO_HOME`, in the package, in `capszoo-weights`, in `weights/` of a checkout, then at
    `CAPSZOO_RELEASE_URL`; the first file found must have the SHA-256 of the card. The loaded model must then give the
    stored outputs for the stored input.
    Warns if the weights were trained on other data than the preset's name says.
    Errors: `ConfigError` for an unknown preset and for another `num_classes`; `WeightsNotFound` saying where was
    looked; `IntegrityError` for a file that is not the published one or a model that does not behave like it;
    `WeightsError` for weights that do not fit, naming every variable.

    >>> load("dynamic_mnist").preset.card.trained_on
    'mnist'
    """
    from capszoo.training.weight_files import WeightsError

    preset = get_preset(name)
    while True:
        try:
            return _load(preset, num_classes, weights)
        except (IntegrityError, WeightsNotFound, WeightsError):
            before, preset = preset, get_preset(name)
            # Unless another preset has been published since its card was read.
            if preset.card == before.card:
                raise


def _load(preset, num_classes, weights):
    from capszoo.training.weight_files import load_weights

    name = preset.name
    if weights is None and preset.card is None:
        raise WeightsNotFound(
            f"no weights are published for {name!r}. Train it: capszoo train {name}; or an untrained model: "
            f"capszoo.create({name!r}). With weights: {', '.join(list_models(pretrained=True)) or 'none'}."
        )
    recipe = preset.recipe
    model = recipe.build(num_classes)
    new_head = num_classes is not None and num_classes != recipe.data.num_classes
    fresh = recipe.model.head if new_head else ()
    if weights is not None:
        load_weights(model, Path(weights), fresh)
    else:
        _read(preset, WEIGHTS, lambda path: load_weights(model, path, fresh))
    if weights is None and not new_head:
        _read(preset, CHECK, lambda path: check_behaviour(name, model, path))
    if weights is None and preset.card.trained_on != preset.dataset:
        warnings.warn(
            f"{name}: these weights were trained on {preset.card.trained_on}, not on {preset.dataset}; "
            f"their numbers are not {preset.dataset} results.",
            stacklevel=3,
        )
    return _equip(model, preset, recipe)


def _read(preset, file, read):
    """Calls `read(path)` of a published file; again if it got its published name between being found and being read."""
    from capszoo.training.weight_files import WeightsError

    path = find_file(preset, file)
    try:
        read(path)
    except WeightsError:
        if path.exists():
            raise
        read(find_file(preset, file))


def check_behaviour(name, model, path):
    """Errors: `IntegrityError` unless `model` gives the outputs that are stored in a file for the input there."""
    import numpy as np

    from capszoo.training.weight_files import read_arrays

    stored, _ = read_arrays(path)
    outputs = model.predict_on_batch(stored["images"])
    for output in sorted(stored.keys() - {"images"}):
        deviation = float(np.abs(np.asarray(outputs[output]) - stored[output]).max())
        allowed = CHECK_TOLERANCE * float(np.abs(stored[output]).max())
        if not deviation <= allowed:
            raise IntegrityError(
                f"{name}: {output} for the stored input differ by {deviation:.2g} from the published ones "
                f"(allowed: {allowed:.2g}). The weights do not belong to this version of the architecture."
            )


def _equip(model, preset, recipe):
    from capszoo.data.preprocessing import Preprocessing

    model.preset = dataclasses.replace(preset, mapping={**preset.mapping, **recipe.to_mapping()})
    model.preprocess = Preprocessing(**recipe.data.preprocessing)
    return model
