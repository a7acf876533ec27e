"""Presets: the registry of named models, and what list, describe, create and load read from it.

A preset is a recipe in `zoo_configs/`, or weights that were published from a recipe elsewhere. Where there are weights
it has a folder with
  card.json             everything known of the weights,
  weights.safetensors   the weights,
  check.safetensors     a fixed input and the outputs it must give.
Nothing here imports Keras until a model is made.
"""

import dataclasses

from capszoo.zoo import locating, recipes
from capszoo.zoo.card import Card, read_card


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named model: its recipe as plain data, and the card of its weights where it has any."""

    name: str
    mapping: dict
    card: Card | None

    @property
    def recipe(self):
        """The parsed `capszoo.zoo.recipes.Recipe`; of the weights, where there are any. Imports Keras."""
        mapping = self.mapping
        if self.card:
            # The weights may be older than the recipe: what decides weights is the card's, as a whole.
            others = {part: mapping[part] for part in ("card", "search") if part in mapping}
            mapping = {**others, **self.card.recipe}
        return recipes.parse_recipe(self.name, mapping)

    @property
    def architecture(self) -> str:
        """The name in the model section."""
        return self.mapping["model"]["name"]

    @property
    def routing(self) -> str:
        """What routes, e.g. "dynamic" or "em"; as the weights were trained, where there are any."""
        return self.card.routing if self.card else self.mapping.get("card", {}).get("routing", "")

    @property
    def dataset(self) -> str:
        """The data set of the recipe."""
        return self.mapping["data"]["name"]


def get_preset(name: str) -> Preset:
    """The preset of that name. Errors: `ConfigError` naming the nearest one.

    >>> preset = get_preset("matrix_em_mnist")
    >>> preset.architecture, preset.routing, preset.card.parameters
    ('matrix_em', 'em', 68308)
    """
    name = recipes.current_name(name)
    mapping = recipes.mapping_of(name)
    path = locating.weights_folder() / name / locating.CARD
    card = read_card(path) if path.is_file() else None
    return Preset(name, mapping, card)
