"""Recipes: the YAML files of `zoo_configs/`, parsed and checked against the models and data sets they name."""

import dataclasses
import warnings
from pathlib import Path

from capszoo import config
from capszoo.search.recipe import parse_recipe
from capszoo.training.recipe import Recipe


def folder() -> Path:
    """Where the recipes lie: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "zoo_configs"
    return installed if installed.is_dir() else package.parent / "zoo_configs"


# Names that presets had before.
FORMER_NAMES = {
    "dense_mnist": "unmasked_mnist",
    "dense_mnist_expanded": "unmasked_mnist_expanded",
    "dense_mnist_expanded_small": "unmasked_mnist_expanded_small",
    "learned_em_mnist": "consensus_em_mnist",
    "learned_em_smallnorb": "consensus_em_smallnorb",
}


def current_name(name: str) -> str:
    """The name that a preset has now; warns where it had another one before."""
    if name not in FORMER_NAMES:
        return name
    warnings.warn(f"the preset {name!r} is called {FORMER_NAMES[name]!r} now.", FutureWarning, stacklevel=3)
    return FORMER_NAMES[name]


def names() -> list[str]:
    """The names of all recipes."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def read_recipe(name_or_path, overrides=()) -> Recipe:
    """The recipe of a preset's name or of a YAML file, with `section.key=value` overrides laid over it.

    Errors: `ConfigError` for an unknown name or file, and for whatever the file or an override gets wrong.
    """
    name_or_path = current_name(str(name_or_path))
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if name_or_path not in names():
            raise config.ConfigError(
                f"unknown preset {name_or_path!r}{config.nearest(name_or_path, names())}"
            )
        path = folder() / f"{name_or_path}.yaml"
    written = config.read_yaml(path)
    try:
        recipe = parse_recipe(path.stem, config.apply_overrides(written, overrides))
        return dataclasses.replace(recipe, dataset=written.get("data", {}).get("name", recipe.dataset))
    except config.ConfigError as error:
        raise config.ConfigError(f"{path.name}: {error}") from error
