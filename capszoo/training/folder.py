"""What lies in the folder of a run, read again."""

from pathlib import Path

from capszoo.config import ConfigError, read_yaml
from capszoo.training.checkpoint import FILE as CHECKPOINT
from capszoo.training.recipe import parse_recipe
from capszoo.training.weight_files import WeightsError, load_weights, read_header

RECIPE, BEST = "recipe.yaml", "best.safetensors"


def stage_folder(directory, stage) -> Path:
    """Where in the folder of a run an earlier stage of it has its own, with the same files."""
    return Path(directory) / "stages" / stage.name


def load_run(directory):
    """Recipe, model and metadata of a run: the recipe is named after the folder.

    Model and metadata are those of `load_best`.
    Errors: `ConfigError` where there is no run; `WeightsError` for one without a finished epoch.
    """
    recipe = _read_recipe(Path(directory))
    return recipe, *load_best(recipe, directory)


def _read_recipe(directory):
    path = directory / RECIPE
    if not path.exists():
        raise ConfigError(f"there is no run in {directory}: it has no {RECIPE}.")
    mapping = read_yaml(path)
    try:
        return parse_recipe(directory.resolve().name, mapping)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def changes(directory, recipe):
    """In words, what `recipe` has otherwise than the run in `directory`; empty where no weight depends on it."""
    recipes = _read_recipe(Path(directory)), recipe
    before, after = (_flat(each.to_mapping()) for each in recipes)
    before["stages in order"], after["stages in order"] = ([s.name for s in each.stages] for each in recipes)
    ignored = {f"train.{name}" for name in set.intersection(*(each.train.ignored for each in recipes))}
    return "; ".join(
        f"{key}: {before.get(key)!r} -> {after.get(key)!r}"
        for key in {**after, **before}
        if key not in ignored and before.get(key) != after.get(key)
    )


def _flat(mapping, prefix=""):
    """The values of nested mappings by their dotted keys."""
    flat = {}
    for key, value in mapping.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def load_best(recipe, directory):
    """The inference model of a finished run, with the weights of its lowest validation error, in float32.

    Errors: `WeightsError` for weights that are missing, damaged, or do not say of which step they are.
    """
    model, path = recipe.build(), Path(directory) / BEST
    metadata = load_weights(model, path)
    if not {"step", "error"} <= metadata.keys():
        raise WeightsError(f"{path} does not say of which step and error it is: no run has written it.")
    return model, metadata


def has_same_images(recipe, directory) -> bool:
    """Whether the data have the images now that a run was trained on; True where nothing is known of that.

    Where they have not, an image that was trained on may be among those for testing.
    Errors: `DataNotFound`; `WeightsError` for a checkpoint that cannot be read; `ValueError` for such images.
    """
    path = Path(directory) / CHECKPOINT
    images = read_header(path)[1].get("images") if path.exists() else None
    return images is None or images == recipe.data.open("train").fingerprint()
