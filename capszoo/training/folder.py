"""What lies in the folder of a run, read again."""

import json
from pathlib import Path

from capszoo.config import ConfigError, read_yaml
from capszoo.training.recipe import parse_recipe
from capszoo.training.weight_files import load_weights

RECIPE, BEST = "recipe.yaml", "best.safetensors"


def stage_folder(directory, stage) -> Path:
    """Where in the folder of a run an earlier stage of it has its own, with the same files."""
    return Path(directory) / "stages" / stage.name


def load_run(directory):
    """Recipe, model and metadata of a run: the recipe is named after the folder and has no card.

    Model and metadata are those of `load_best`.
    Errors: `ConfigError` where there is no run; `WeightsError` for one without a finished epoch.
    """
    recipe = _read_recipe(Path(directory))
    return recipe, *load_best(recipe, directory)


def _read_recipe(directory):
    path = directory / RECIPE
    mapping = read_yaml(path)
    try:
        return parse_recipe(directory.resolve().name, mapping)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def changes(directory, recipe):
    """In words, what `recipe` has otherwise than the run in `directory`; empty where nothing is."""
    before, after = (_flat(each.to_mapping()) for each in (_read_recipe(Path(directory)), recipe))
    return "; ".join(
        f"{key}: {before.get(key)!r} -> {after.get(key)!r}"
        for key in {**after, **before}
        if before.get(key) != after.get(key)
    )


def _flat(mapping, prefix=""):
    """The values of nested mappings by their dotted keys."""
    flat = {}
    for key, value in mapping.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def load_best(recipe, directory):
    """The inference model of a finished run, with the weights of its lowest validation error, in float32."""
    model = recipe.build()
    metadata = load_weights(model, Path(directory) / BEST)
    return model, metadata


def read_log(directory) -> list[dict]:
    """The records of a run, in order. Errors: `FileNotFoundError` where there is no run."""
    lines = (Path(directory) / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
