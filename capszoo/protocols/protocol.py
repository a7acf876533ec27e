"""The contract of a protocol: how a number in a paper was measured, as one object.

A protocol is a frozen dataclass of options, registered with `capszoo.config.section("protocol", name)` as data sets and
architectures are. Evaluation, comparison, cards and tables ask for it by name and know nothing else of it:

    protocol = get_protocol("sparsity", {"images": 20})
    result = protocol.measure([subject])
    protocol.rows(result), protocol.notes(result), protocol.draw([subject], result)
"""

import abc
import dataclasses
import typing

import keras
import numpy as np

from capszoo import config
from capszoo.config import ConfigError
from capszoo.models.architecture import Architecture, require
from capszoo.progress import QUIET, Progress
from capszoo.protocols import provenance
from capszoo.protocols.measurement import Measurement
from capszoo.protocols.report import Report
from capszoo.protocols.subject import Subject
from capszoo.training.recipe import Recipe


class Protocol(abc.ABC):
    """An evaluation of a paper; its fields are options.

    where:
      source: where the paper describes it.
      metric: what is measured; unit: of what, "" for shares.
      role: what the architecture of each model must be able to do, see `capszoo.models.architecture`.
      models: the least and the greatest number of models that one measurement looks at; None is any.
    """

    section_name: typing.ClassVar[str]
    source: typing.ClassVar[str]
    metric: typing.ClassVar[str]
    unit: typing.ClassVar[str] = ""
    role: typing.ClassVar[type] = Architecture
    models: typing.ClassVar[tuple[int, int | None]] = (1, 1)

    def data(self, recipe):
        """The data set whose test split is looked at. Errors: `ConfigError` where it does not fit the model's."""
        return recipe.data

    def measure(self, subjects, *, command="", progress=QUIET) -> Report:
        """Measures `subjects`, each a `capszoo.protocols.Subject`.

        where:
          command: the command line that measures the same again, for the record.
          progress: see `capszoo.progress`.

        Returns plain values, a `Measurement` or another `Report`, with all that is needed to measure them again.
        Errors: those of `require_fit`; `DataNotFound`.
        """
        self.require_fit(subjects)
        provenance.revision()  # Of the code as it is now: what is committed meanwhile is not what measures.
        return self.measured(subjects, command, progress)

    def require_fit(self, subjects):
        """Errors: `ConfigError` for another number of models, and for models and data that do not play their role."""
        least, most = self.models
        if len(subjects) < least or (most is not None and len(subjects) > most):
            many = f"{least}" if least == most else f"{least} or more"
            raise ConfigError(
                f"protocol {self.section_name!r} looks at {many} model(s). Received: {len(subjects)}"
            )
        for subject in subjects:
            self.require_recipe(subject.recipe)

    def require_recipe(self, recipe):
        """Errors: `ConfigError` for a model or data that do not play their role; no image is read."""
        require(recipe.model, self.role, f"protocol {self.section_name!r}")
        self.data(recipe)

    @abc.abstractmethod
    def measured(self, subjects, command, progress) -> Report:
        """What `measure` returns for models that were found to fit."""

    @abc.abstractmethod
    def rows(self, result) -> list[dict[str, str]]:
        """The result as rows of a table: texts by the names of their columns."""

    def notes(self, result) -> list[str]:
        """What is to be said beside the table."""
        return []

    def draw(self, subjects, result) -> dict:
        """Drawings of the result by name, each a matplotlib `Figure`."""
        return {}


class NumberProtocol(Protocol):
    """A protocol that gives one number of one model, which a card may have."""

    def open(self, recipe):
        """The images that are looked at. Errors: `DataNotFound`."""
        return self.data(recipe).open("test")

    @abc.abstractmethod
    def number(self, subject, progress) -> dict:
        """What a `Measurement` says of a number and of its data: value, interval, wrong, n, data, fingerprint.

        The unit too where it depends on the model.
        """

    def measured(self, subjects, command, progress) -> Measurement:
        (subject,) = subjects
        said = self.number(subject, progress)
        # NumPy's numbers do not go into a card's JSON.
        plain = {key: np.asarray(said[key]).tolist() for key in ("value", "interval", "wrong", "n")}
        return Measurement(
            protocol=self.section_name,
            metric=self.metric,
            **{"unit": self.unit, **said, **plain, "interval": tuple(plain["interval"])},
            split="test",
            paper=subject.recipe.card.protocols.get(self.section_name),
            seeds=1,
            command=command,
            **provenance.stamp(),
        )

    def rows(self, result):
        low, high = map(result.text, result.interval)
        return [
            {
                result.metric: f"{result.text(result.value)} {result.unit}".rstrip(),
                "95 % interval": f"{low} to {high}",
                "images": f"{result.n}",
                "data": f"{result.data} {result.split}",
                "paper": "" if result.paper is None else result.text(result.paper),
            }
        ]

    def notes(self, result):
        return [f"{self.section_name}: {result.sentence()}"]


def variant(base: type, name: str, promise: str, **values) -> type:
    """Registers a protocol of the family `base` that differs in values of its class.

    where:
      promise: one line that says what it measures, its docstring.
    """
    cls = type(base)(base.__name__, (base,), {"__doc__": promise, "__module__": base.__module__, **values})
    return config.section("protocol", name)(dataclasses.dataclass(frozen=True)(cls))


def protocols() -> dict[str, type]:
    """The registered protocols by name."""
    from capszoo.protocols import register

    register()
    return config.sections("protocol")


def get_protocol(name: str, options: dict | None = None) -> Protocol:
    """The protocol of that name, with options of its own as plain data. Errors: `ConfigError` naming the nearest."""
    protocols()
    return config.parse_section("protocol", {"name": name, **(options or {})})


def evaluate(
    model: keras.Model,
    recipe: Recipe | None = None,
    protocol: str | Protocol = "test_error",
    *,
    command: str = "",
    progress: Progress = QUIET,
) -> Report:
    """Measures one protocol on `model`.

        capszoo.evaluate(capszoo.load("dynamic_mnist"))

    where:
      model: an inference model of `recipe`, or anything with its `predict_on_batch(images) -> {"scores": ...}`.
      recipe: the `capszoo.training.recipe.Recipe` of the model; None is that of a preset's or a run's model,
        `model.preset.recipe`.
      protocol: its name, or a `Protocol` with options.
      command: the command line that measures the same again, for the record.
      progress: counts images.

    Returns a `Measurement`, or of a protocol that gives more than one number another `Report`.
    Errors: `ConfigError` for an unknown protocol or one that does not fit the model or its training, and for a model
    with classes of its own that is given no recipe; `DataNotFound`; `TypeError` for a name instead of a model
    or a recipe; `ValueError` for a model that has no recipe of its own and is given none.
    """
    if not isinstance(recipe, Recipe | None):
        raise TypeError(f"recipe must be a Recipe; a protocol's name is protocol=. Received: {recipe!r}")
    recipe = recipe or _own_recipe(model)
    chosen = get_protocol(protocol) if isinstance(protocol, str) else protocol
    return chosen.measure([Subject(recipe.name, recipe, model)], command=command, progress=progress)


def _own_recipe(model):
    """That of a preset's or a run's model, of whose data the classes are."""
    if isinstance(model, str):
        raise TypeError(f"a model is needed, e.g. capszoo.load({model!r}). Received: {model!r}")
    preset = getattr(model, "preset", None)
    if preset is None:
        raise ValueError(
            "recipe must be given for a model that is not of capszoo.load or create. Received: None"
        )
    known, own = preset.recipe.data.class_names, model.class_names
    if own and tuple(own) != tuple(known):
        raise ConfigError(
            f"{preset.recipe.data.set_name} has images of {len(known)} classes. Received: a model of {len(own)}, "
            f"{', '.join(own)} instead of {', '.join(known)}; give a recipe whose data have these."
        )
    return preset.recipe
