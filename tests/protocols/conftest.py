"""The tiny smallNORB is the only one there is."""

import pytest
from tiny_norb import RECIPES, REST, read_pairs

from capszoo.data import smallnorb
from capszoo.zoo.recipes import read_recipe


@pytest.fixture(autouse=True)
def pairs(monkeypatch):
    """Every copy of synthnorb is the tiny one."""
    monkeypatch.setattr(smallnorb, "read_pairs", read_pairs)


@pytest.fixture(scope="session")
def recipe_folder(tmp_path_factory):
    """A folder with the recipe files of the tiny nets."""
    folder = tmp_path_factory.mktemp("recipes")
    for name, model in RECIPES.items():
        (folder / f"{name}.yaml").write_text(model + REST, encoding="utf-8")
    return folder


@pytest.fixture
def recipe(recipe_folder):
    """`recipe(name, *overrides)`."""
    return lambda name, *overrides: read_recipe(recipe_folder / f"{name}.yaml", overrides)
