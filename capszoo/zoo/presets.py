"""Presets: the registry of named models, and what list, describe, create and load read from it.

A preset is a recipe in `zoo_configs/`, or weights that were published from a recipe elsewhere, which are named by their
folder; the folder of a run stands for its own recipe and its best weights wherever a preset does. Where weights are
published a folder has
  card.json             everything known of the weights,
  weights.safetensors   the weights,
  check.safetensors     a fixed input and the outputs it must give.
Nothing here imports Keras until a model is made.
"""

import dataclasses
import json
from pathlib import Path

from capszoo import config
from capszoo.training.recipe import dataset_of
from capszoo.zoo import locating, recipes
from capszoo.zoo.card import Card, read_card
from capszoo.zoo.locating import CARD


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named model: its recipe as plain data, and the card of its weights where it has any.

    where:
      run: the folder, of a run; folder: that of a preset that is published outside the package.
    """

    name: str
    mapping: dict
    card: Card | None
    run: Path | None = None
    folder: Path | None = None

    @property
    def outside(self) -> Path | None:
        """The folder of what is not in the package; None for a preset that is."""
        return self.run or self.folder

    @property
    def recipe(self):
        """The parsed `capszoo.zoo.recipes.Recipe`; of the weights, where there are any. Imports Keras."""
        mapping = self.mapping
        if self.card:
            # The weights may be older than the recipe: what decides weights is the card's, as a whole.
            others = {part: mapping[part] for part in ("card", "search") if part in mapping}
            mapping = {**others, **self.card.recipe}
        return recipes.parse_recipe(self.name, mapping)

    def get_config(self) -> dict:
        """What a `.keras` file keeps: recipe and card, as JSON."""
        return {
            "name": self.name,
            "mapping": json.dumps(self.mapping),
            "card": self.card and self.card.to_json(),
        }

    @classmethod
    def from_config(cls, config_: dict) -> "Preset":
        """The preset of `get_config`."""
        card = config_["card"] and config.parse(Card, json.loads(config_["card"]), "card")
        return cls(config_["name"], json.loads(config_["mapping"]), card)

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
        """The data set of the recipe, as `DataSet.set_name` says it."""
        return dataset_of(self.mapping["data"])


def get_preset(name: str) -> Preset:
    """The preset of that name, or in that folder: of a run, or published there.

    Errors: `ConfigError` naming the nearest one.

    >>> preset = get_preset("matrix_em_mnist")
    >>> preset.architecture, preset.routing, preset.card.parameters
    ('matrix_em', 'em', 68308)
    """
    if recipes.is_run(name):
        folder = Path(name)
        card = read_card(folder / CARD) if (folder / CARD).is_file() else None
        return Preset(folder.resolve().name, config.read_yaml(folder / recipes.RUN), card, folder)
    folder = Path(name).resolve() if recipes.is_published(name) else None
    name = recipes.current_name(name)
    mapping = recipes.mapping_of(name)
    path = (folder or locating.weights_folder() / name) / CARD
    card = read_card(path) if path.is_file() else None
    return Preset(folder.name if folder else name, mapping, card, folder=folder)
