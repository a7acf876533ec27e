"""From a preset and somebody's own data to a run that is used like a preset."""

import dataclasses
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from capszoo import config, plugins
from capszoo.config import ConfigError
from capszoo.data.cropping import CroppedImages
from capszoo.data.sources import DataNotFound
from capszoo.models.architecture import Classifies, ShiftsScores, require
from capszoo.progress import QUIET, Progress
from capszoo.protocols import evaluate, get_protocol, provenance
from capszoo.search.recipe import parse_recipe
from capszoo.training.claim import of_other_images
from capszoo.training.folder import BEST, has_same_images, load_best
from capszoo.training.processes import joined
from capszoo.training.run import train
from capszoo.training.weight_files import save_weights
from capszoo.zoo.calibrating import calibrate
from capszoo.zoo.card import Card, read_card, write_card
from capszoo.zoo.locating import CARD
from capszoo.zoo.presets import get_preset
from capszoo.zoo.publishing import make_card
from capszoo.zoo.recipes import named
from capszoo.zoo.starting import find_start

EPOCHS = 10
# A smaller set of pictures has at least so many steps in an epoch.
LEAST_STEPS = 4
# Share of all steps. From former weights of matrix_em_mnist some trainings that began at the full rate never named some
# of the classes; from the present ones it makes no difference, see docs/notes.md.
WARMUP = 0.2


def finetune(
    name: str,
    data: str,
    directory: str | Path | None = None,
    *,
    overrides: Iterable[str] = (),
    progress: Progress = QUIET,
) -> tuple[Card, Path]:
    """Trains a preset on other data, measures its test error, and writes the card of the new model.

    where:
      name: a preset with weights or the folder of a run; what is new in the model are the class capsules, unless the
        classes are the same, and what the shape of the images changes.
      data: a folder of pictures, see `capszoo.data.folder.Folder`; a data set of capszoo; or one that TensorFlow
        Datasets has prepared, see `capszoo.data.tfds.Tfds`. Pictures are scaled to the preset's images,
        toys and photographs of objects cropped as they are; digits keep their size.
      directory: of the run, `runs/PRESET_DATA` by default. Killed and called again, it goes on.
      overrides: `section.key=value` texts laid over the recipe, see `finetuning_recipe`.

    Scores that the loss determines but for a shift of their logits are shifted, see `capszoo.zoo.calibrating`.
    Returns the card and the folder, which also has `card.json` and is taken wherever a preset is: by `capszoo.load`,
    `predict`, `visualize`, `evaluate` and `export`.
    Errors: `ConfigError` for a preset that tells no classes; `DataNotFound`; and as `capszoo.training.run.train`.
    """
    recipe = finetuning_recipe(name, data, overrides)
    provenance.revision()  # Of the code as it is now: what is committed meanwhile is not what runs.
    directory = Path(directory or Path("runs") / recipe.name)
    # What is wrong with its pictures is better known now than after the training.
    recipe.data.open("test")
    # Sooner than of options that follow from the number of pictures.
    if not has_same_images(recipe, directory):
        raise of_other_images(directory)
    train(recipe, directory, progress, find=find_start)
    # Only one of several processes writes.
    joined().by_first(_measure, recipe, directory, progress)
    return read_card(directory / CARD), directory


def _measure(recipe, directory, progress):
    """Shifts the scores of a finished run where that is due, measures its test error, and writes its card."""
    model, best = load_best(recipe, directory)
    if recipe.model.has(ShiftsScores):
        calibrate(recipe, model)
        save_weights(model, directory / BEST, metadata=best)
    command = shlex.join(plugins.command("evaluate", named(directory), "--protocol", "test_error"))
    measured = evaluate(model, recipe, get_protocol("test_error"), command=command, progress=progress)
    card = make_card(recipe, model, directory, best, [measured], {directory / BEST: "float32"})
    write_card(card, directory)


def finetuning_recipe(name: str, data: str, overrides: Iterable[str] = ()):
    """The recipe that `finetune` trains: the preset's network, the other data, and a short training.

    The learning rate rises to the preset's in a fifth of all steps and falls along a cosine to zero;
    `train.pretrained_rate` and `train.freeze` are overrides like any other.
    """
    preset = get_preset(name)
    source = preset.recipe
    require(source.model, Classifies, "fine-tuning")
    # Presets of several stages are one network in the end.
    mapping = {"model": config.to_mapping(source.model), "data": _data(data, source.data)}
    known = config.to_mapping(source.train)
    kept = ("learning_rate", "gradient_clip", "precision", "seed")
    mapping["train"] = {key: known[key] for key in kept} | {
        "epochs": EPOCHS,
        "schedule": "cosine",
        "minimum_learning_rate": 0.0,
        "start_from": str(name),
    }
    mapping["card"] = {
        "title": f"{preset.name}, fine-tuned on {data}",
        "routing": source.model.routing,
        "reference": source.model.paper,
        "deviations": [f"Begins with the weights of {preset.name}, and is trained for a short time."],
        "protocols": {"test_error": None},
    }
    title = f"{preset.name}_{_word(Path(data).name)}"
    written = config.apply_overrides(mapping, overrides)
    if written["train"].get("start_from") is None:
        written["card"]["deviations"] = ["Begins with random weights, and is trained for a short time."]
    _fit(written, title, known["batch_size"])
    return parse_recipe(title, written)


def _fit(written, title, batch_size):
    """Adds to the recipe `written` what depends on how many images there are and no override says."""
    train = written["train"]
    missing = {"batch_size", "warmup_steps"} if train["schedule"] == "cosine" else {"batch_size"}
    if missing <= train.keys():
        return
    try:
        recipe = parse_recipe(title, written)
        images = len(recipe.data.open("train"))
    except DataNotFound as error:
        if written["data"]["name"] != "tfds":
            raise
        name = written["data"]["set"]
        missing = f"there is no folder {name!r}"
        # A configuration of a data set has a slash too; what is in a folder that is here is meant as a path.
        if Path(name).parent != Path() and Path(name).parent.is_dir():
            raise DataNotFound(missing) from error
        raise DataNotFound(f"{missing}, and {error}") from error
    images = min(images, recipe.train.images or images)
    if "batch_size" not in train:
        train["batch_size"] = _whole_shares(min(batch_size, images // LEAST_STEPS))
    if "warmup_steps" in missing:
        steps = recipe.train.epochs * (images // train["batch_size"])
        train.setdefault("warmup_steps", int(WARMUP * steps))


def _whole_shares(size):
    """The batch of at most `size` images, but no less than one a device, that all devices share equally."""
    devices = joined().devices
    return max(devices, size // devices * devices)


def _word(text):
    """`text` as a part of a name."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower() or "data"


def _view(cls, source):
    """What a data set `cls` that resizes and crops has of another one: images of the same shape and look."""
    if not (issubclass(cls, CroppedImages) and isinstance(source, CroppedImages)):
        return {}
    return {field.name: getattr(source, field.name) for field in dataclasses.fields(CroppedImages)}


def _data(data, source):
    """The section `data` of the recipe: pictures in the shape that the preset knows, like sets with its options."""
    height, width, channels = source.image_shape
    like = {
        "size": [height, width],
        "channels": channels,
        "standardise": source.preprocessing.get("standardise", False),
    }
    folder = os.path.expanduser(data)
    if Path(folder).is_dir():
        # The run is evaluated from other working directories too.
        return {"name": "folder", "path": os.path.abspath(folder), **like}
    own = {name: cls for name, cls in config.sections("data").items() if name not in ("folder", "tfds")}
    if data in own:
        # Of one kind, such as smallNORB and its twin, are sets with the same options.
        alike = isinstance(source, own[data]) or issubclass(own[data], type(source))
        return {**(config.to_mapping(source) if alike else _view(own[data], source)), "name": data}
    if re.fullmatch(r"[a-z0-9_]+(/[A-Za-z0-9_.-]+)?", str(data)):
        return {"name": "tfds", "set": str(data), **like}
    reason = f"a folder of pictures or a data set is needed; there is no folder {str(data)!r}"
    raise ConfigError(f"{reason}{config.nearest(str(data), own)}")
