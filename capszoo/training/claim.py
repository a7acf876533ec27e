"""Whose a folder is: it holds one run of one recipe."""

import yaml

from capszoo.config import ConfigError
from capszoo.training.checkpoint import FILE
from capszoo.training.files import write_text
from capszoo.training.folder import RECIPE, changes


def claim(recipe, directory):
    """Writes the recipe into the folder of a run, or finds the same one beside a checkpoint there.

    Errors: `ConfigError` for a checkpoint of another recipe, and for one without any.
    """
    path = directory / RECIPE
    if not (directory / FILE).exists():
        write_text(path, yaml.safe_dump(recipe.to_mapping(), sort_keys=False))
        return
    if not path.exists():
        raise ConfigError(
            f"{directory} has a checkpoint and no {RECIPE}, so nobody knows of what. Put it back, or give another "
            "folder with --out."
        )
    # Parsed, since options that are newer than the run had their defaults in it.
    changed = changes(directory, recipe)
    if changed:
        raise ConfigError(
            f"{directory} holds a run of another recipe ({changed}). "
            "Give another folder with --out, or delete that one."
        )
