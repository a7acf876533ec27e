"""Recipes that may have a section `search`."""

import dataclasses

from capszoo import config
from capszoo.search.space import parse_search
from capszoo.training import recipe as recipes
from capszoo.training.recipe import Recipe


def parse_recipe(name: str, mapping: dict) -> Recipe:
    """A `Recipe` from plain data, its section `search` included. Errors: `ConfigError` naming the key."""
    sections = {key: value for key, value in mapping.items() if key != "search"}
    recipe = recipes.parse_recipe(name, sections, (*recipes.SECTIONS, "search"))
    if "search" not in mapping:
        return recipe
    if recipe.stages:
        raise config.ConfigError("search: values are found for one training, and this recipe has stages.")
    return dataclasses.replace(recipe, search=parse_search(mapping["search"], recipe.model, recipe.train))
