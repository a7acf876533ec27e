"""What a preset is made by: a model, data, and how the one is trained on the other."""

import collections
import dataclasses
import numbers
from pathlib import Path

from capszoo import config, plugins
from capszoo.extras import backend
from capszoo.training.config import TrainConfig

SECTIONS = ("model", "data", "train", "card", "stages")


@dataclasses.dataclass(frozen=True)
class CardConfig:
    """What a preset's card says that cannot be measured.

    where:
      title: one line for listings.
      routing: what routes, e.g. "dynamic" or "em"; what presets are filtered by.
      reference: where in the paper the number stands that the preset aims at.
      deviations: how the preset differs from the paper.
      protocols: the evaluations of this preset, each with the paper's value as a share (null: the paper has none).
      licence: of the weights, as an SPDX identifier; "" where whose they are gives none.
    """

    title: str = ""
    routing: str = ""
    reference: str = ""
    deviations: tuple[str, ...] = ()
    protocols: dict[str, float | None] = dataclasses.field(default_factory=dict)
    licence: str = ""

    def without_papers(self):
        """The same without the paper's values, as for data that it has not measured."""
        return dataclasses.replace(self, protocols=dict.fromkeys(self.protocols))


@dataclasses.dataclass(frozen=True)
class Stage:
    """What is trained before the recipe's own `model` and `train`, on the same data.

    where:
      name: of the stage.
      model, train: as in `Recipe`; in the recipe's file only what differs from its own sections is given.
    """

    name: str
    model: object
    train: TrainConfig


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a preset is made.

    where:
      name: the preset, `architecture_dataset[_variant]`.
      model: the architecture's dataclass, e.g. `DynamicCapsNet`; `build` makes the network.
      data: the data set's dataclass, e.g. `Mnist`; `open(split)` gives the images.
      dataset: the name of the data set that the recipe is written for; an override may put another one into `data`.
      train: how it is trained.
      card: what the card says that cannot be measured.
      stages: what is trained before, in this order. Each stage, and then the recipe itself, begins with the best
        weights of the one before, wherever both have one of the same name in the same shape.
      search: which of its values `capszoo tune` looks for, a `capszoo.search.space.SearchConfig`; None where the recipe
        says nothing of that.
    """

    name: str
    model: object
    data: object
    dataset: str
    train: TrainConfig
    card: CardConfig = CardConfig()
    stages: tuple[Stage, ...] = ()
    search: object | None = None

    def build(self, num_classes=None, image_shape=None):
        """The untrained inference model; the arguments replace the data set's own number of classes and shape.

        Errors: `ConfigError` for a `num_classes` that is not an integer of at least 2, and for any where the
        architecture does not classify; naming the key, for what is too large, see `capszoo.models.size`; for
        standardised images where they are reconstructed.
        """
        from capszoo.models.architecture import Classifies, Reconstructs, require
        from capszoo.models.size import check_size

        if self.model.has(Reconstructs) and self.data.preprocessing.get("standardise"):
            raise config.ConfigError(
                f"data.standardise: {self.model.section_name!r} reconstructs images in [0, 1]; standardised ones are "
                "out of its reach. Set it to false, and data.jitter=raw where there is one, or use no decoder."
            )
        if num_classes is None:
            num_classes = self.data.num_classes
        else:
            require(self.model, Classifies, "num_classes")
            if (
                not isinstance(num_classes, numbers.Integral)
                or isinstance(num_classes, bool)
                or num_classes < 2
            ):
                raise config.ConfigError(
                    f"num_classes must be an integer of at least 2. Received: {num_classes!r}"
                )
        shape = self.data.image_shape if image_shape is None else image_shape
        sizes = shape if isinstance(shape, tuple | list) else ()
        if len(sizes) != 3 or not all(isinstance(size, int) and size >= 1 for size in sizes):
            raise config.ConfigError(
                f"image_shape must be (H, W, C), each at least 1. Received: {image_shape!r}"
            )
        arguments = (tuple(shape), int(num_classes), self.data.labels_per_image)
        check_size(self.model, *arguments)
        model = self.model.build(*arguments)
        # Architectures of plug-ins may not say it.
        model.labels_per_image = self.data.labels_per_image
        _check_built(self.model, model)
        return model

    def objective(self, model):
        """What `model` is trained on, see `capszoo.models.Objective`."""
        return self.model.objective(model, self.data.labels_per_image)

    def at(self, stage):
        """The recipe of one of its stages."""
        return dataclasses.replace(
            self, name=f"{self.name}, {stage.name}", model=stage.model, train=stage.train, stages=()
        )

    def to_mapping(self) -> dict:
        """All that decides the weights, defaults included, as plain data; `parse_recipe` turns it back."""
        mapping = {part: config.to_mapping(getattr(self, part)) for part in ("model", "data", "train")}
        stages = {
            stage.name: {part: config.to_mapping(getattr(stage, part)) for part in ("model", "train")}
            for stage in self.stages
        }
        return mapping | ({"stages": stages} if stages else {})


def without_repetition(mapping: dict) -> dict:
    """What `Recipe.to_mapping` has written, its stages without what they share with the sections `model` and `train`.

    It parses alike, and what is laid over these sections changes stages too, as in a recipe that is written by hand.
    """
    stages = mapping.get("stages")
    if not isinstance(stages, dict):
        return mapping

    def own(part, values):
        shared = mapping.get(part)
        alike = (
            isinstance(values, dict) and isinstance(shared, dict) and values.get("name") == shared.get("name")
        )
        if not alike:
            return values
        return {key: value for key, value in values.items() if key not in shared or shared[key] != value}

    def own_of(stage):
        return (
            {part: own(part, values) for part, values in stage.items()} if isinstance(stage, dict) else stage
        )

    return mapping | {"stages": {name: own_of(stage) for name, stage in stages.items()}}


def _check_built(architecture, model):
    """Errors: `ConfigError` for weights that files could not tell apart, and where names are of nothing in `model`."""
    paths = collections.Counter(weight.path for weight in model.weights)
    if twice := sorted(path for path, count in paths.items() if count > 1):
        raise config.ConfigError(
            f"model: several weights have one path, {twice[0]}. Give the layers of {architecture.section_name!r} names."
        )
    known = {
        "head": ("weight", list(paths)),
        "stages": ("layer", [layer.name for layer in model.layers]),
        "served": ("output", list(model.output)),
    }
    for name, (kind, valid) in known.items():
        value = getattr(architecture, name)
        if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
            raise config.ConfigError(f"model: {name} must be a tuple of texts. Received: {value!r}")
        # A head says how paths begin.
        is_one = str.startswith if name == "head" else str.__eq__
        for each in value:
            if not any(is_one(one, each) for one in valid):
                raise config.ConfigError(
                    f"model: {name} of {architecture.section_name!r} names {each!r}, and it has no such "
                    f"{kind}{config.nearest(each, valid)}"
                )


def dataset_of(data: dict) -> str:
    """What a recipe's section `data`, as plain data, calls its data set; as `DataSet.set_name`, without Keras."""
    if data["name"] == "folder":
        return f"folder {Path(data.get('path') or '').name}".rstrip()
    return data.get("set") or data["name"]


def register():
    """Makes the sections of models and data sets known; not on import, so that names are listed without Keras."""
    with backend():
        import capszoo.data
        import capszoo.models  # noqa: F401
    plugins.load()


def parse_recipe(name: str, mapping: dict, known=SECTIONS) -> Recipe:
    """A `Recipe` from plain data, without its section `search`.

    Errors: `ConfigError` naming the key, and for a section that is not among `known`.
    """
    register()
    for key in mapping:
        if key not in known:
            raise config.ConfigError(f"{key}: unknown section{config.nearest(key, known)}")
    data = config.parse_section("data", mapping.get("data"))
    train = config.parse(TrainConfig, mapping.get("train", {}), "train")
    return Recipe(
        name,
        config.parse_section("model", mapping.get("model")),
        data,
        data.set_name,
        train,
        config.parse(CardConfig, mapping.get("card", {}), "card"),
        _parse_stages(mapping),
    )


def _parse_stages(mapping):
    """The section `stages`: by name, what a stage has otherwise than the sections `model` and `train`."""
    stages = mapping.get("stages", {})
    if not isinstance(stages, dict):
        raise config.ConfigError(f"stages: a mapping of stages by name is needed. Received: {stages!r}")
    if stages and mapping.get("train", {}).get("start_from"):
        raise config.ConfigError("train.start_from: stages begin with the weights of the one before.")
    return tuple(_parse_stage(name, changes, mapping) for name, changes in stages.items())


def _parse_stage(name, changes, mapping):
    where = f"stages.{name}"
    # It names a folder.
    if not (isinstance(name, str) and name.isidentifier()):
        raise config.ConfigError(f"{where}: a stage's name is a word of letters, digits and '_'.")
    if not isinstance(changes, dict):
        raise config.ConfigError(f"{where}: a mapping of sections is needed. Received: {changes!r}")
    laid_over = {}
    for part, values in changes.items():
        if part not in ("model", "train"):
            raise config.ConfigError(
                f"{where}.{part}: unknown section{config.nearest(part, ('model', 'train'))}"
            )
        if not isinstance(values, dict):
            raise config.ConfigError(f"{where}.{part}: a mapping is needed. Received: {values!r}")
        # Options of one architecture are none of another.
        own = mapping.get(part, {})
        alike = values.get("name", own.get("name")) == own.get("name")
        laid_over[part] = {**own, **values} if alike else values
    try:
        train = config.parse(TrainConfig, laid_over.get("train", mapping.get("train", {})), f"{where}.train")
    except config.ConfigError as error:
        # What the section says of its own values is of one without stages.
        text = str(error)
        raise config.ConfigError(f"{where}.{text}" if text.startswith("train.") else text) from error
    if train.start_from:
        raise config.ConfigError(
            f"{where}.train.start_from: stages begin with the weights of the one before."
        )
    return Stage(
        name, config.parse_section("model", laid_over.get("model", mapping["model"]), f"{where}.model"), train
    )
