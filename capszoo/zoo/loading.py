"""From a preset's name to its model, untrained or with its weights."""

import dataclasses
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capszoo.config import ConfigError
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
# The same where layers compute in half precision: sixteen roundings of the largest output.
HALF_TOLERANCES = {"float16": 16 * 2.0**-10, "bfloat16": 16 * 2.0**-7}


def create(
    name: str,
    *,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    image_shape: tuple[int, int, int] | None = None,
    overrides: Iterable[str] = (),
) -> "keras.Model":
    """The untrained model of a preset, a `keras.Model` with `.preset` and `.preprocess`.

    where:
      num_classes: another number of classes than the data set's, at least 2, where the architecture classifies.
      class_names: their names; they alone say how many there are.
      image_shape: another `(H, W, C)` of the images than the data set's.
      overrides: `section.key=value` texts laid over the recipe.

    Errors: `ConfigError` for an unknown preset or override and for another `num_classes`; `ValueError` for an
    `image_shape` that is too small for the architecture.

    >>> create("matrix_em_mnist", num_classes=7, overrides=["model.num_iterations=1"]).output["scores"].shape
    (None, 7)
    """
    recipe = recipes.read_recipe(name, overrides)
    num_classes = _count(num_classes, class_names)
    model = recipe.build(num_classes, image_shape)
    # Without the card: it is about the published weights, which this model does not have.
    preset = dataclasses.replace(get_preset(name), card=None)
    return _equip(model, preset, recipe, class_names)


def load(
    name: str,
    *,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    image_shape: tuple[int, int, int] | None = None,
    weights: str | Path | None = None,
    freeze: str | None = None,
    pretrained_rate: float = 1.0,
) -> "keras.Model":
    """The pretrained model of a preset, a `keras.Model` with `.preset` and `.preprocess`.

    where:
      name: a preset, see `list_models(pretrained=True)`, or the folder of a run, whose best weights are loaded.
      num_classes: another number of classes, at least 2, where the architecture classifies. The class capsules, and
        what is sized by them, are then new and untrained; everything below keeps its weights.
      class_names: names of the classes; they alone say how many there are. Other names than the data set's are other
        classes, and the class capsules are new.
      image_shape: another `(H, W, C)`. Weights that it changes are new and untrained, except a convolution of the
        images, which takes a grey picture in any number of channels alike. `preprocess` does not resize or crop then.
      weights: a safetensors file to load instead of the published one.
      freeze: a stage of the network, such as "class_capsules"; the layers below it learn nothing more.
      pretrained_rate: what `fit` multiplies the learning rate of loaded weights with, in [0, 1]; new ones have 1. An
        optimiser's weight decay stays that of the full rate.

    Weights are looked for in `CAPSZOO_HOME`, in the package, in `capszoo-weights`, in `weights/` of a checkout, then at
    `CAPSZOO_RELEASE_URL`; the first file found must have the SHA-256 of the card. The loaded model must then give the
    stored outputs for the stored input; under a dtype policy such as "mixed_float16", as nearly as its layers compute.
    `.preset.card` is None where the model is another than the published one: of other weights, classes or images.
    Warns if the weights were trained on other data than the preset's name says.
    Errors: `ConfigError` for an unknown preset and for another `num_classes`; `WeightsNotFound` saying where was
    looked; `IntegrityError` for a file that is not the published one or a model that does not behave like it;
    `WeightsError` for weights that do not fit, naming every variable; `ValueError` for an unknown stage or a rate
    outside [0, 1].

    >>> load("dynamic_mnist").preset.card.trained_on
    'mnist'
    """
    from capszoo.training.weight_files import WeightsError

    if not 0 <= pretrained_rate <= 1:
        raise ValueError(f"pretrained_rate must be in [0, 1]. Received: {pretrained_rate}")
    adapted = (_count(num_classes, class_names), class_names, image_shape)
    preset = get_preset(name)
    while True:
        try:
            model, fresh = _load(preset, weights, *adapted)
            break
        except (IntegrityError, WeightsNotFound, WeightsError):
            before, preset = preset, get_preset(name)
            # Unless another preset has been published since its card was read.
            if preset.card == before.card:
                raise
    if pretrained_rate != 1:
        model.rates = {w.path: pretrained_rate for w in model.weights if w.path not in fresh}
    if freeze is not None:
        from capszoo.models.freezing import freeze_below

        freeze_below(model, freeze)
    return model


def _count(num_classes, class_names):
    """How many classes are asked for; None for those of the data set."""
    if class_names is None:
        return num_classes
    if isinstance(class_names, str) or len(set(class_names)) != len(class_names):
        raise ConfigError(f"class_names must be different names. Received: {class_names!r}")
    if num_classes not in (None, len(class_names)):
        raise ConfigError(f"num_classes must be {len(class_names)}, the class names. Received: {num_classes}")
    return len(class_names)


def _load(preset, weights, num_classes, class_names, image_shape):
    """The model, and the paths of its weights that are new."""
    from capszoo.training.folder import BEST
    from capszoo.training.weight_files import load_weights, start_weights

    name = preset.name
    if weights is None and preset.card is None and preset.run is None:
        raise WeightsNotFound(
            f"no weights are published for {name!r}. Train it: capszoo train {name}; or an untrained model: "
            f"capszoo.create({name!r}). With weights: {', '.join(list_models(pretrained=True)) or 'none'}."
        )
    recipe = preset.recipe
    model = recipe.build(num_classes, image_shape)
    new_head = num_classes is not None and num_classes != recipe.data.num_classes
    new_head |= class_names is not None and tuple(class_names) != tuple(recipe.data.class_names)
    head = recipe.model.head if new_head else ()
    fresh = [weight.path for weight in model.weights if weight.path.startswith(tuple(head))]

    def read(path):
        if image_shape is None:
            load_weights(model, path, head)
        else:
            fresh[:] = start_weights(model, path, head)

    if weights is not None:
        read(Path(weights))
    elif preset.run is not None:
        read(preset.run / BEST)
    else:
        _read(preset, WEIGHTS, read)
        # The stored input has the published shape.
        if not fresh and tuple(model.input_shape[1:]) == recipe.data.image_shape:
            _read(preset, CHECK, lambda path: check_behaviour(name, model, path))
        if preset.card.trained_on != preset.dataset:
            warnings.warn(
                f"{name}: these weights were trained on {preset.card.trained_on}, not on {preset.dataset}; "
                f"their numbers are not {preset.dataset} results.",
                stacklevel=3,
            )
    # The card is about the published weights, in the published network.
    if weights is not None or fresh or tuple(model.input_shape[1:]) != recipe.data.image_shape:
        preset = dataclasses.replace(preset, card=None)
    return _equip(model, preset, recipe, class_names), fresh


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
    """Errors: `IntegrityError` unless `model` gives the outputs that are stored in a file for the input there.

    They may differ by what the arithmetic of the model's dtype policy rounds.
    """
    import numpy as np

    from capszoo.training.weight_files import read_arrays
    from capszoo.zoo.full_precision import full_precision

    stored, _ = read_arrays(path)
    with full_precision():
        outputs = model.predict_on_batch(stored["images"])
    tolerance, reason = CHECK_TOLERANCE, "The weights do not belong to this version of the architecture."
    if model.compute_dtype in HALF_TOLERANCES:
        tolerance = HALF_TOLERANCES[model.compute_dtype]
        reason = (
            f"In {model.compute_dtype} it is too coarse, or these are no weights of this version: load it after "
            'keras.config.set_dtype_policy("float32").'
        )
    for output in sorted(stored.keys() - {"images"}):
        deviation = float(np.abs(np.asarray(outputs[output], np.float32) - stored[output]).max())
        allowed = tolerance * float(np.abs(stored[output]).max())
        if not deviation <= allowed:
            raise IntegrityError(
                f"{name}: {output} for the stored input differ by {deviation:.2g} from the published ones "
                f"(allowed: {allowed:.2g}). {reason}"
            )


def _equip(model, preset, recipe, class_names):
    """Gives `model` what is known of it beside its layers."""
    from capszoo.data.preprocessing import Preprocessing
    from capszoo.models.architecture import Classifies

    card = {**preset.mapping.get("card", {}), "protocols": recipe.card.protocols}
    mapping = {**preset.mapping, **recipe.to_mapping(), "card": card}
    model.preset = dataclasses.replace(preset, mapping=mapping)
    image_shape, preprocessing = tuple(model.input_shape[1:]), recipe.data.preprocessing
    model.raw_shape = recipe.data.raw_shape
    if image_shape != recipe.data.image_shape:
        model.raw_shape = image_shape
        preprocessing = {"standardise": preprocessing.get("standardise", False)}
    model.preprocess = Preprocessing(**preprocessing)
    if recipe.model.has(Classifies):
        count = model.output["scores"].shape[-1]
        names = recipe.data.class_names if class_names is None else class_names
        model.class_names = tuple(names) if len(names) == count else tuple(map(str, range(count)))
    return model
