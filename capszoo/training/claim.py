"""Whose a folder is: it holds one run of one recipe."""

import yaml

from capszoo import config
from capszoo.config import ConfigError
from capszoo.training.checkpoint import FILE
from capszoo.training.files import write_text
from capszoo.training.folder import BEST, RECIPE, changes
from capszoo.training.log import LOG


class OtherRun(ConfigError):
    """What lies in a folder cannot go on with the recipe or the images that are there now."""


def of_other_images(directory) -> OtherRun:
    """The error for a run that was begun on other training images."""
    return OtherRun(
        f"{directory} holds a run on other training images than those that are there now. Give another folder with "
        "--out, or delete that one."
    )


def claim(recipe, directory):
    """Writes the recipe into the folder of a run, or finds the same one beside a checkpoint there.

    Errors: `OtherRun` for a checkpoint of another recipe, for one without any, for a run without its checkpoint, and
    for stages that have begun and are not those that the recipe begins with; `ConfigError` for options that would be
    others when they are read again, such as those of a type that YAML does not have, and where none has begun, as
    `TrainConfig.require_falling_rate`.
    """
    for kind in ("model", "data"):
        _require_readable(kind, getattr(recipe, kind))
    path = directory / RECIPE
    if not (directory / FILE).exists():
        left = [name for name in (BEST, LOG) if (directory / name).exists()]
        if left:
            raise OtherRun(
                f"{directory} has the {left[0]} of a run and no {FILE}, so that it cannot go on. Put it back, or give "
                "another folder with --out."
            )
        _require_same_stages(recipe, directory)
        for part in (*recipe.stages, recipe):
            part.train.require_falling_rate()
        # Nothing is trained by the card, but whoever publishes or evaluates the run needs it.
        kept = {**recipe.to_mapping(), "card": config.to_mapping(recipe.card)}
        write_text(path, yaml.safe_dump(kept, sort_keys=False))
        return
    if not path.exists():
        raise OtherRun(
            f"{directory} has a checkpoint and no {RECIPE}, so nobody knows of what. Put it back, or give another "
            "folder with --out."
        )
    # Parsed, since options that are newer than the run had their defaults in it.
    changed = changes(directory, recipe)
    if changed:
        raise OtherRun(
            f"{directory} holds a run of another recipe ({changed}). "
            "Give its values to go on with it, another folder with --out, or delete that one."
        )


def _require_same_stages(recipe, directory):
    """Errors: `OtherRun` where stages have begun that `recipe` does not begin with: the next would start from them."""
    begun = {path.parent.name for path in (directory / "stages").glob(f"*/{FILE}")}
    names, count = [stage.name for stage in recipe.stages], len(begun)
    written = config.read_yaml(directory / RECIPE) if begun and (directory / RECIPE).exists() else {}
    if set(names[:count]) != begun or names[:count] != list(written.get("stages", names))[:count]:
        raise OtherRun(
            f"{directory} holds a run that has begun with other stages ({', '.join(sorted(begun))}) than those of this "
            f"recipe ({', '.join(names) or 'none'}). Give another folder with --out, or delete that one."
        )


def _require_readable(kind, options):
    written = config.to_mapping(options)
    try:
        same = config.parse_section(kind, yaml.safe_load(yaml.safe_dump(written))) == options
    except (ConfigError, yaml.YAMLError) as error:
        raise ConfigError(f"{kind}: its options cannot be written and read again: {error}") from error
    if not same:
        raise ConfigError(f"{kind}: its options are others when they are read again. Received: {options}")
