"""The recipe that a search has found."""

import dataclasses

import yaml

from capszoo import config
from capszoo.search.leaderboard import value_text
from capszoo.search.space import with_values


def best_recipe(rows, recipe) -> str:
    """The text of a recipe with the values of the first row: for a whole training, not for one of a trial's length."""
    best = rows[0]
    images = recipe.search.images or recipe.train.images
    of_images = f" on {images:,} training images" if images else ""
    head = [
        f"Found by a search of {recipe.name}, {recipe.search.oracle}, {len(rows)} sets of values: trial "
        f"{best['trial']}, validation error {best['validation_error']:.2%}",
        f"after {best['steps']:,} steps{of_images}. Its values:",
        *(f"  {key}: {value_text(value)}" for key, value in best["values"].items()),
    ]
    found = with_values(recipe, best["values"])
    parts = {name: _different(getattr(found, name)) for name in ("model", "data", "train", "card")}
    return "".join(f"# {line}\n" for line in head) + "\n" + yaml.safe_dump(parts, sort_keys=False)


def _different(part):
    """What of a section is not its default, and its name."""
    defaults = {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(part)
    }
    mapping = config.to_mapping(part)
    return {key: mapping[key] for key in mapping if key == "name" or getattr(part, key) != defaults[key]}
