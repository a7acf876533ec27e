"""Publishing: from a finished run to a preset's folder of weights, behavioural check and card.

The numbers in the card are measured here, on the weights as they are stored. Nothing is typed by hand.
"""

import dataclasses
import shlex
from pathlib import Path

import keras
import numpy as np

from capszoo import plugins
from capszoo.config import ConfigError
from capszoo.data.sources import DataNotFound
from capszoo.data.split import Stream, generator
from capszoo.models.network import trainable_parameters
from capszoo.progress import QUIET
from capszoo.protocols import evaluate, provenance
from capszoo.search import record as searches
from capszoo.search.recipe import parse_recipe
from capszoo.training.folder import (
    BEST,
    changes,
    has_same_images,
    load_best,
    stage_folder,
)
from capszoo.training.log import read_log
from capszoo.training.recipe import CardConfig
from capszoo.training.weight_files import (
    WeightsError,
    load_weights,
    read_arrays,
    save_weights,
    write_arrays,
)
from capszoo.zoo import locating
from capszoo.zoo.calibrating import calibrate
from capszoo.zoo.card import Card, WeightFile, read_card
from capszoo.zoo.integrity import sha256_of
from capszoo.zoo.loading import check_behaviour, load
from capszoo.zoo.locating import CARD, CHECK, WEIGHTS
from capszoo.zoo.recipes import names, require_numbers
from capszoo.zoo.replacing import replace, replacing_preset, update_card

DTYPES = ("float16", "float32", "int8")
# Of scores and poses, as a share of the largest: what rounding the weights may change at most.
LARGEST_LOSS = 0.1


def publish(recipe, run, target=None, dtype="float16", progress=QUIET, search=None) -> Card:
    """Publishes the best weights of the run in folder `run` as the preset `recipe.name`.

    where:
      recipe: the recipe of the run; its card section says what cannot be measured.
      target: the folder that gets one folder per preset; None is that of `folder_of_presets`.
      dtype: what weights are stored as, "float16", "float32" or "int8", which halves large networks once more; metrics
        are measured on what is stored.
      progress: counts the images of every measurement, and says its result.
      search: the folder of the search that found the recipe's values, for the card; None where there was none.

    Scores that the loss determines but for a shift of their logits are shifted before, see `calibrate`.
    An earlier preset of the name is replaced once everything is measured; whoever reads finds one of both, whole. Its
    card's speed, which depends on no weight, is handed on where network and shape of its images are the same. A
    protocol whose data are missing is reported and left out of the card, unless the earlier card has it.
    Errors: `ConfigError` for a run of another recipe, of other training images or without its end, for another `dtype`,
    where another process publishes the preset, for the name of a preset of another architecture or data set, for a
    recipe without a card section in the place of one with a card, and in the package's own folder for code that is not
    committed, since nobody could measure the same again;
    `DataNotFound` where the data of all protocols are missing, or of one that was measured before; `WeightsError` for a
    run without usable weights, and where rounding spoils them.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype: weights are stored as {', '.join(DTYPES)}. Received: {dtype!r}")
    changed = changes(run, recipe)
    if changed:
        raise ConfigError(f"{run} holds a run of another recipe than {recipe.name!r} ({changed}).")
    _require_finished(recipe, Path(run))
    target = Path(target or folder_of_presets(recipe.name))
    _require_committed(target)
    _require_same(recipe, target)
    found = searches.read(Path(search), recipe) if search else None
    with replacing_preset(target / recipe.name) as new:
        model, best = load_best(recipe, run)
        calibrate(recipe, model)
        model = _store(recipe, model, new, dtype)
        earlier = _earlier(target / recipe.name)
        before = {metric.protocol for metric in earlier.metrics} if earlier else set()
        name = recipe.name if _is_the_packages(target) else target / recipe.name
        metrics = _measure(model, recipe, name, before, progress)
        kinds = ((WEIGHTS, dtype), (CHECK, "float32"))
        card = make_card(recipe, model, run, best, metrics, {new / file: kind for file, kind in kinds})
        if earlier and _of_same_network(earlier, recipe):
            card = dataclasses.replace(card, speed=earlier.speed)
        if found:
            card = dataclasses.replace(card, search=found)
        replace(target / recipe.name, card)
    return card


def folder_of_presets(name) -> Path:
    """Where a preset of that name is published: one of the zoo in the package, others in `presets/`."""
    return locating.weights_folder() if name in names() else Path("presets")


def measure_again(preset, progress=QUIET) -> Card:
    """Measures the protocols of a published preset with the present code; the card gets the numbers and the revision.

    where:
      preset: a `capszoo.zoo.presets.Preset` with weights in the package. They stay as they are.
      progress: counts the images of every measurement, and says its result.

    Errors: `ConfigError` for a preset without weights and for code that is not committed; `DataNotFound` where data are
    missing of a protocol that was measured before; `IntegrityError` and `WeightsError` as `capszoo.load`.
    """
    if preset.card is None or preset.outside:
        raise ConfigError(f"{preset.outside or preset.name} has no weights in the package to measure.")
    _require_committed(locating.weights_folder())
    before = {metric.protocol for metric in preset.card.metrics}
    metrics = _measure(load(preset.name), preset.recipe, preset.name, before, progress)
    return update_card(
        locating.weights_folder() / preset.name,
        preset.card.files,
        metrics=tuple(metrics),
        date=provenance.today(),
        revision=provenance.revision(),
    )


def _require_finished(recipe, run):
    """Errors: `ConfigError` for a run that has not come to its end, or was made of other training images."""
    record = read_log(run)[-1]
    if record.get("epoch") != recipe.train.epochs and not record.get("stopped"):
        reached = f"step {record['step']}" + (f", epoch {record['epoch']}" if "epoch" in record else "")
        raise ConfigError(
            f"{run} has come to {reached}, of {recipe.train.epochs} epochs: train it to its end."
        )
    if not has_same_images(recipe, run):
        raise ConfigError(f"{run} was trained on other images than those that are there now.")


def _of_same_network(card, recipe):
    """Whether a card is of the network of `recipe`, for images of the same shape and as many classes."""
    try:
        before = parse_recipe(recipe.name, card.recipe)
    except ConfigError:
        return False
    return before.model == recipe.model and all(
        getattr(before.data, part) == getattr(recipe.data, part)
        for part in ("image_shape", "num_classes", "labels_per_image")
    )


def _is_the_packages(target):
    return target.resolve() == locating.weights_folder().resolve()


def _require_committed(target):
    """Errors: `ConfigError` where the package's own weights would get a card that names no commit."""
    revision = provenance.revision()
    if not provenance.is_committed(revision) and _is_the_packages(target):
        raise ConfigError(
            f"cards in {target} name the commit that they were measured at. Received: {revision}, a working tree with "
            "changes. Commit them first, or publish to another folder with --out."
        )


def _require_same(recipe, target):
    """Errors: `ConfigError` where the preset of the name in `target` is of another architecture or data set.

    And where it has a card and `recipe` says nothing for one, as the recipe of a run did before it kept its card.
    """
    earlier = _earlier(target / recipe.name)
    if earlier and recipe.card == CardConfig() and (earlier.title or earlier.metrics):
        raise ConfigError(
            f"{recipe.name!r} in {target} has a card, and this recipe has no section `card` for a new one. Publish the "
            "recipe that the run was trained by, with --run."
        )
    before = (earlier.architecture, earlier.dataset) if earlier else None
    now = (recipe.model.section_name, recipe.dataset)
    if before not in (None, now):
        raise ConfigError(
            f"{recipe.name!r} in {target} is of {' and '.join(before)}; it is not replaced by a network of "
            f"{' and '.join(now)}. Rename the recipe, or publish to another folder with --out."
        )


def _earlier(folder):
    """The card of the preset that is to be replaced; None where there is none."""
    card = folder / CARD
    return read_card(card) if card.exists() else None


def _measure(model, recipe, name, before, progress):
    """The numbers of a preset that commands know by `name`; of data that are missing none, unless `before` has one."""
    metrics, missing = [], None
    require_numbers(recipe.card.protocols)
    for protocol in recipe.card.protocols:
        command = shlex.join(plugins.command("evaluate", str(name), "--protocol", protocol))
        try:
            metrics.append(evaluate(model, recipe, protocol, command=command, progress=progress))
        except DataNotFound as error:
            if protocol in before:
                raise
            missing = error
            progress.say(f"{protocol} is not measured: {error}")
        else:
            progress.say(metrics[-1].sentence())
    if missing and not metrics:
        raise missing
    return metrics


def _store(recipe, trained, folder, dtype):
    """Writes weights and behavioural check, and returns the model that is loaded from them.

    The check is a fixed input, noise of many contrasts, and what the stored weights make of it.
    Errors: `WeightsError` where that is another thing than what the `trained` model makes of it, since `dtype` is too
    coarse; `IntegrityError` where it is not what a model gives that is loaded anew.
    """
    save_weights(trained, folder / WEIGHTS, dtype, {"preset": recipe.name})
    rng = generator(0, Stream.FIXED, 0)
    noise = rng.random((8, *trained.input.shape[1:]), dtype=np.float32)
    images = noise ** np.arange(1, 9, dtype=np.float32).reshape(8, 1, 1, 1)
    stored, again = recipe.build(), recipe.build()
    load_weights(stored, folder / WEIGHTS)
    before, after = (_outputs(recipe, model, images) for model in (trained, stored))
    for name, wanted in before.items():
        deviation, largest = np.abs(after[name] - wanted).max(), np.abs(wanted).max()
        if not deviation <= LARGEST_LOSS * largest:
            raise WeightsError(
                f"{name} of the weights stored as {dtype} differ by up to {deviation:.2g} from the trained ones (the "
                f"largest is {largest:.2g}). Nothing is published; try --dtype float32."
            )
    write_arrays(folder / CHECK, {"images": images, **after})
    load_weights(again, folder / WEIGHTS)
    check_behaviour(recipe.name, again, folder / CHECK)
    return stored


def _outputs(recipe, model, images):
    outputs = model.predict_on_batch(images)
    return {name: np.asarray(outputs[name]) for name in recipe.model.served}


def make_card(recipe, model, run, best, metrics, files) -> Card:
    """The card of the model of a run.

    where:
      best: metadata of its weights; metrics: what was measured of them.
      files: the type of the numbers in each file of the preset, by path.
    """
    train = recipe.data.open("train")
    return Card(
        name=recipe.name,
        title=recipe.card.title,
        architecture=recipe.model.section_name,
        routing=recipe.model.routing,
        paper=recipe.model.paper,
        reference=recipe.card.reference,
        deviations=recipe.card.deviations,
        parameters=trainable_parameters(model),
        dataset=recipe.dataset,
        trained_on=recipe.data.set_name,
        training_split=f"{recipe.train.images or len(train):,} images of the training set",
        training_fingerprint=train.fingerprint(),
        preprocessing=_preprocessing(recipe.data),
        recipe=recipe.to_mapping(),
        training=_training(recipe, run, best),
        stages={
            stage.name: _training(recipe.at(stage), folder, read_arrays(folder / BEST)[1])
            for stage in recipe.stages
            for folder in [stage_folder(run, stage)]
        },
        metrics=tuple(metrics),
        licence=recipe.card.licence,
        data_licence=recipe.data.licence,
        files={
            path.name: WeightFile(sha256_of(path), path.stat().st_size, kind) for path, kind in files.items()
        },
        exports={},
        date=provenance.today(),
        revision=provenance.revision(),
    )


def _training(recipe, run, best):
    """What the run in a folder reported, of one stage."""
    record = read_log(run)
    speeds = [line["images_per_second"] for line in record]
    return {
        "epochs": recipe.train.epochs,
        "best step": best["step"],
        "steps": record[-1]["step"],
        **({} if best["error"] is None else {"validation error": best["error"]}),
        "median images/s": round(float(np.median(speeds)), 1),
        "precision": recipe.train.precision,
        # Weights that are older than the two say neither.
        "backend": best.get("backend", keras.backend.backend()),
        **({"accelerator": best["accelerator"]} if best.get("accelerator") else {}),
    }


def _preprocessing(data):
    """In words: what becomes of pictures before the model sees them."""
    steps = data.preprocessing
    words = [f"images {'x'.join(map(str, data.raw_shape))} in [0, 1]"]
    words += [f"resized to {steps['resize']}x{steps['resize']}"] if steps.get("resize") else []
    words += [f"middle {steps['crop']}x{steps['crop']}"] if steps.get("crop") else []
    words += ["each with mean 0 and deviation 1"] if steps.get("standardise") else []
    return ", ".join(words)
