"""What the `search` section of a recipe says: which of the recipe's values to look for, and at what cost.

    search:
      oracle: bayesian
      trials: 20
      epochs: 2
      images: 10000
      space:
        model.units: {int: {min: 4, max: 32, log: true}}
        model.loss: {choice: [cross_entropy, spread]}
        train.learning_rate: {float: {min: 1.0e-4, max: 1.0e-2, log: true}}

`capszoo.search.tuner` carries it out.
"""

import dataclasses
import math
import typing

from capszoo import config
from capszoo.config import ConfigError

# The search itself decides these for every trial.
DECIDED = {
    "train.epochs": "search.epochs",
    "train.images": "search.images",
    "train.stop_at_error": "the end of a trial",
    "train.stop_split": "the objective, the validation error",
}


@dataclasses.dataclass(frozen=True)
class IntegerRange:
    """Integers from `min` to `max`, both included.

    where:
      step: what lies between neighbours; with `log` it is a factor. None takes all integers.
      log: equal ratios are equally likely instead of equal differences.
    """

    min: int
    max: int
    step: int | None = None
    log: bool = False

    def __post_init__(self):
        _check_range(self)
        if self.step is not None and self.step < 1 + self.log:
            raise ValueError(f"step must be at least {1 + self.log}. Received: {self.step}")


@dataclasses.dataclass(frozen=True)
class NumberRange:
    """Numbers from `min` to `max`; with `log` equal ratios are equally likely instead of equal differences."""

    min: float
    max: float
    log: bool = False

    def __post_init__(self):
        _check_range(self)


def _check_range(space):
    if not space.min < space.max:
        raise ValueError(f"min must be below max. Received: {space.min} and {space.max}")
    if space.log and space.min <= 0:
        raise ValueError(f"min must be above 0 where log is true. Received: {space.min}")


@dataclasses.dataclass(frozen=True)
class Space:
    """The values that one key of a recipe may take: one of three kinds.

    where:
      choice: any of these values; a value that is a list stays whole.
      int: an `IntegerRange`; float: a `NumberRange`.
    """

    choice: tuple[object, ...] | None = None
    int: IntegerRange | None = None
    float: NumberRange | None = None

    def __post_init__(self):
        given = [kind for kind in ("choice", "int", "float") if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"one of choice, int, float is needed. Received: {given or 'nothing'}")
        if self.choice is not None and (
            not self.choice or any(each in self.choice[:i] for i, each in enumerate(self.choice))
        ):
            raise ValueError(f"choice: different values are needed. Received: {list(self.choice)}")

    @property
    def examples(self) -> tuple:
        """All values of a choice, the ends of a range."""
        if self.choice is not None:
            return self.choice
        ends = self.int or self.float
        return (ends.min, ends.max)

    @property
    def count(self) -> float:
        """How many different values there are."""
        if self.choice is not None:
            return len(self.choice)
        if self.int is None:
            return math.inf
        low, high, step = self.int.min, self.int.max, self.int.step
        if step and self.int.log:
            return 1 + max(k for k in range(high.bit_length()) if low * step**k <= high)
        return 1 + (high - low) // (step or 1)


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    """A search for the recipe's values with the lowest validation error. Overridden as `search.<field>=<value>`.

    where:
      space: the values that each key `model.<field>` or `train.<field>` may take.
      oracle: who proposes values: "random"; "bayesian", a Gaussian process over earlier errors; "hyperband", which
        trains many trials shortly and only the better ones on. It needs `epochs` of at least `factor`, and a space of
        at least as many combinations as trials.
      trials: how many; None for Hyperband, which counts its own.
      epochs: passes over a trial's images, at most; Hyperband gives most trials fewer.
      images: training images of a trial; None takes as many as the recipe.
      factor: Hyperband keeps one trial in so many and trains it so many times longer.
      seed: of the oracle. The trials themselves all have the seed of the recipe.
    """

    space: dict[str, Space]
    oracle: typing.Literal["random", "bayesian", "hyperband"] = "random"
    trials: int | None = None
    epochs: int = 1
    images: int | None = None
    factor: int = 3
    seed: int = 0

    def __post_init__(self):
        if not self.space:
            raise ConfigError("search.space: at least one key is needed. Received: {}")
        if self.oracle == "hyperband" and self.trials is not None:
            raise ConfigError(
                f"search.trials: Hyperband counts its own trials; null is needed. Received: {self.trials}"
            )
        if self.oracle == "hyperband" and self.epochs < self.factor:
            raise ConfigError(
                f"search.epochs: Hyperband keeps trials on only from search.factor, {self.factor}. "
                f"Received: {self.epochs}"
            )
        if self.oracle != "hyperband" and self.trials is None:
            raise ConfigError("search.trials: the number of trials is needed. Received: null")
        for name, least in (("trials", 1), ("epochs", 1), ("images", 1), ("factor", 2), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"search.{name}: must be at least {least}. Received: {value}")

    @property
    def combinations(self) -> float:
        """How many different trials the space has."""
        return math.prod(space.count for space in self.space.values())


def parse_search(mapping, model, train) -> SearchConfig:
    """The `search` section beside the parsed sections `model` and `train`, whose fields it names.

    Choices become values of the fields' types.

    Errors: `ConfigError` for a key that they do not have, naming the nearest one, for a key that the search decides
    itself, and for values that they would not take.
    """
    search = config.parse(SearchConfig, mapping, "search")
    parts = {"model": model, "train": train}
    valid = {f"{part}.{field.name}" for part, owner in parts.items() for field in dataclasses.fields(owner)}
    spaces = {}
    for key, space in search.space.items():
        if key in DECIDED:
            raise ConfigError(f"search.space.{key}: is decided by {DECIDED[key]}.")
        if key not in valid:
            raise ConfigError(f"search.space.{key}: unknown key{config.nearest(key, valid - DECIDED.keys())}")
        part, _, field = key.partition(".")
        try:
            taken = [getattr(lay_over(parts[part], {field: each}, part), field) for each in space.examples]
        except ConfigError as error:
            raise ConfigError(f"search.space.{error}") from error
        try:
            spaces[key] = space if space.choice is None else Space(choice=tuple(taken))
        except ValueError as error:
            raise ConfigError(f"search.space.{key}: {error}") from error
    return dataclasses.replace(search, space=spaces)


def lay_over(part, values: dict, where: str):
    """The section `part` with other values of some fields. Errors: `ConfigError` for values it does not take."""
    before = {key: value for key, value in config.to_mapping(part).items() if key != "name"}
    return config.parse(type(part), before | values, where)


def with_values(recipe, values: dict):
    """`recipe` with other values, given by dotted key. Errors: `ConfigError` for values it does not take."""
    for name in ("model", "train"):
        changes = {k.partition(".")[2]: v for k, v in values.items() if k.startswith(f"{name}.")}
        recipe = dataclasses.replace(recipe, **{name: lay_over(getattr(recipe, name), changes, name)})
    return recipe
