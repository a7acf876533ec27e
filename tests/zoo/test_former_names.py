"""Presets that have been renamed still load under their old names, and say so."""

import pytest

import capszoo
from capszoo.zoo import recipes


@pytest.mark.parametrize("former", sorted(recipes.FORMER_NAMES))
def test_a_former_name_gives_the_preset_with_a_warning(former):
    with pytest.warns(FutureWarning, match=f"{former!r} is called {recipes.FORMER_NAMES[former]!r} now"):
        preset = capszoo.get_preset(former)
    assert preset.name == recipes.FORMER_NAMES[former]
    with pytest.warns(FutureWarning, match="is called"):
        recipe = recipes.read_recipe(former)
    assert recipe.name == preset.name


def test_former_names_are_not_listed():
    assert not set(recipes.FORMER_NAMES) & set(capszoo.list_models())
