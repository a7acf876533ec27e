"""Recipes: the YAML files of `zoo_configs/`, parsed and checked against the models and data sets they name."""

import dataclasses
from pathlib import Path

from capszoo import config
from capszoo.search import SearchConfig, parse_search

SECTIONS = ("model", "data", "train", "card", "search")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a preset is made.

    where:
      name: the preset, `architecture_dataset[_variant]`.
      model: the architecture's dataclass, e.g. `DynamicCapsNet`; `build` makes the network.
      data: the data set's dataclass, e.g. `Mnist`; `open(split)` gives the images.
      train: how it is trained.
      card: what the card says that cannot be measured, see `CardConfig`.
      search: which of its values `capszoo tune` looks for, see `SearchConfig`; None where it says nothing of that.
    """

    name: str
    model: object
    data: object
    train: config.TrainConfig
    card: config.CardConfig
    search: SearchConfig | None = None

    @property
    def name_of_dataset(self) -> str:
        """The data set that the recipe file names, whatever an override put in its place."""
        return config.read_yaml(folder() / f"{self.name}.yaml")["data"]["name"]

    def build(self, num_classes=None):
        """The untrained inference model; `num_classes` replaces the data set's own number of classes."""
        return self.model.build(
            self.data.image_shape, num_classes or self.data.num_classes, self.data.labels_per_image
        )

    def objective(self, model):
        """What `model` is trained on, see `capszoo.models.Objective`."""
        return self.model.objective(model, self.data.labels_per_image)

    def to_mapping(self) -> dict:
        """All that decides the weights, defaults included, as plain data; `parse_recipe` turns it back."""
        return {part: config.to_mapping(getattr(self, part)) for part in ("model", "data", "train")}


def folder() -> Path:
    """Where the recipes lie: inside the installed package, or beside it in a checkout."""
    installed = Path(__file__).parent / "zoo_configs"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "zoo_configs"


def names() -> list[str]:
    """The names of all recipes."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def read_recipe(name_or_path, overrides=()) -> Recipe:
    """The recipe of a preset's name or of a YAML file, with `section.key=value` overrides laid over it.

    Errors: `ConfigError` for an unknown name or file, and for whatever the file or an override gets wrong.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if str(name_or_path) not in names():
            raise config.ConfigError(
                f"unknown preset {str(name_or_path)!r}{config.nearest(name_or_path, names())}"
            )
        path = folder() / f"{name_or_path}.yaml"
    mapping = config.apply_overrides(config.read_yaml(path), overrides)
    try:
        return parse_recipe(path.stem, mapping)
    except config.ConfigError as error:
        raise config.ConfigError(f"{path.name}: {error}") from error


def parse_recipe(name: str, mapping: dict) -> Recipe:
    """A `Recipe` from plain data. Errors: `ConfigError` naming the key."""
    # Importing registers the sections; here, so that names and cards can be listed without Keras.
    import capszoo.data
    import capszoo.models  # noqa: F401

    for key in mapping:
        if key not in SECTIONS:
            raise config.ConfigError(f"{key}: unknown section{config.nearest(key, SECTIONS)}")
    model = config.parse_section("model", mapping.get("model"))
    data = config.parse_section("data", mapping.get("data"))
    train = config.parse(config.TrainConfig, mapping.get("train", {}), "train")
    card = config.parse(config.CardConfig, mapping.get("card", {}), "card")
    search = parse_search(mapping["search"], model, train) if "search" in mapping else None
    return Recipe(name, model, data, train, card, search)
