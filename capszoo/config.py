"""Strict typed configuration: recipes are YAML data parsed into frozen dataclasses.

A recipe has sections. `model` and `data` name a registered dataclass (`name: dynamic`, `name: mnist`) and give only
what differs from its defaults; `train` is always `TrainConfig`. Unknown keys, wrong types and illegal values are
errors that name the key and the nearest valid one. Parsing never runs code from the file.
"""

import dataclasses
import difflib
import math
import types
import typing
from pathlib import Path

import yaml


class ConfigError(ValueError):
    """A recipe or an override that cannot mean what it says."""


_SECTIONS: dict[str, dict[str, type]] = {}


def section(kind: str, name: str):
    """Registers a frozen dataclass as what `name: <name>` means in section `kind` of a recipe."""

    def register(cls):
        if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:
            raise TypeError(f"a section must be a frozen dataclass. Received: {cls!r}")
        cls.section_name = name
        _SECTIONS.setdefault(kind, {})[name] = cls
        return cls

    return register


def sections(kind: str) -> dict[str, type]:
    """The registered dataclasses of one section, by name."""
    return dict(_SECTIONS.get(kind, {}))


def nearest(name: str, valid) -> str:
    """`; did you mean 'x'?` where something near exists, and the list of what is valid."""
    valid = sorted(map(str, valid))
    close = difflib.get_close_matches(str(name), valid, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"{hint} Valid: {', '.join(valid) or 'none'}."


def parse_section(kind: str, mapping, where: str | None = None):
    """Builds the dataclass that `mapping['name']` names in section `kind`.

    Errors: `ConfigError` for a missing or unknown name and for whatever `parse` refuses.
    """
    where = where or kind
    known = _SECTIONS.get(kind, {})
    if not isinstance(mapping, dict) or "name" not in mapping:
        raise ConfigError(f"{where}: a mapping with the key 'name' is needed. Received: {mapping!r}")
    name = mapping["name"]
    if not isinstance(name, str) or name not in known:
        raise ConfigError(f"{where}.name: unknown {kind} {name!r}{nearest(name, known)}")
    options = {key: value for key, value in mapping.items() if key != "name"}
    return parse(known[name], options, where)


def parse(cls, mapping, where: str = ""):
    """Builds the frozen dataclass `cls` from plain YAML data, strictly.

    Errors: `ConfigError` naming the dotted key, what was received and what is valid.
    """
    if not isinstance(mapping, dict):
        raise ConfigError(f"{where or cls.__name__}: a mapping is needed. Received: {mapping!r}")
    hints = typing.get_type_hints(cls)
    fields = {field.name for field in dataclasses.fields(cls)}
    values = {}
    for key, value in mapping.items():
        dotted = f"{where}.{key}" if where else str(key)
        if key not in fields:
            raise ConfigError(f"{dotted}: unknown key{nearest(key, fields)}")
        values[key] = _typed(hints[key], value, dotted)
    try:
        return cls(**values)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where or cls.__name__}: {error}") from error


def _typed(hint, value, where):
    """`value` as the annotated type; the only conversions are int -> float, '1e-3' -> float and list -> tuple."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(value) in arguments:
            return value
        (hint, *_) = [argument for argument in arguments if argument is not type(None)]
        return _typed(hint, value, where)
    if origin is typing.Literal:
        if value not in arguments or isinstance(value, bool) != any(
            value is a for a in arguments if isinstance(a, bool)
        ):
            raise ConfigError(f"{where}: {value!r} is not allowed{nearest(value, arguments)}")
        return value
    if origin is tuple:
        return _typed_tuple(arguments, value, where)
    if dataclasses.is_dataclass(hint):
        return parse(hint, value, where)
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: expected a mapping. Received: {value!r}")
        return {
            _typed(arguments[0], k, where): _typed(arguments[1], v, f"{where}.{k}") for k, v in value.items()
        }
    if hint is float and not isinstance(value, bool):
        # YAML 1.1 reads 1e-3 as text; a number is what its author meant.
        if isinstance(value, int | float | str):
            try:
                return float(value)
            except ValueError:
                pass
    elif isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{where}: expected {getattr(hint, '__name__', hint)}. Received: {value!r}")


def _typed_tuple(arguments, value, where):
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: expected a list. Received: {value!r}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    if len(arguments) != len(value):
        raise ConfigError(f"{where}: expected a list of {len(arguments)}. Received: {value!r}")
    return tuple(
        _typed(hint, item, f"{where}[{i}]")
        for i, (hint, item) in enumerate(zip(arguments, value, strict=True))
    )


def to_mapping(config) -> dict:
    """The plain data that `parse` (or `parse_section`, where a name is registered) turns into `config` again."""
    data = {"name": config.section_name} if hasattr(config, "section_name") else {}
    for field in dataclasses.fields(config):
        data[field.name] = _plain(getattr(config, field.name))
    return data


def _plain(value):
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


class _UniqueKeyLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, which YAML itself would let pass in silence."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                mark = node.start_mark
                raise ConfigError(
                    f"{mark.name}: the key {key!r} is given twice in the mapping at line {mark.line + 1}."
                )
        return super().construct_mapping(node, deep)


def read_yaml(path) -> dict:
    """A YAML file as plain data. Errors: `ConfigError` naming the file and the line that cannot be read."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8") as file:
            data = yaml.load(file, Loader=_UniqueKeyLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such recipe file.") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a mapping of sections is needed. Received: {data!r}")
    return data


def apply_overrides(mapping: dict, overrides) -> dict:
    """A copy of `mapping` with `section.key=value` overrides laid over it; values are read as YAML.

    Errors: `ConfigError` for an override without `=`, one that goes through something that is no mapping, and a
    value that is not valid YAML.
    """
    result = {key: dict(value) if isinstance(value, dict) else value for key, value in mapping.items()}
    for override in overrides:
        dotted, equals, text = override.partition("=")
        if not equals or "." not in dotted:
            raise ConfigError(f"an override is written section.key=value. Received: {override!r}")
        head, _, key = dotted.strip().partition(".")
        target = result.setdefault(head, {})
        if not isinstance(target, dict):
            raise ConfigError(f"{head}: cannot be overridden by key. Received: {override!r}")
        try:
            target[key] = yaml.load(text, Loader=_UniqueKeyLoader)
        except yaml.YAMLError as error:
            raise ConfigError(f"not valid YAML: {error}. Received: {override!r}") from error
    return result


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How a model is trained. Every field can be overridden as `train.<field>=<value>`.

    where:
      epochs: passes over the training split, >= 1.
      batch_size: images per step; the last incomplete batch of an epoch is left out.
      images: number of training images that are used, drawn from the training split by the seed; None uses all.
      seed: everything random follows from it: initial weights, order, augmentation; in [0, 2^32).
      start_from: a file of weights to begin with, such as `runs/NAME/best.safetensors`, wherever it has one of the
        model's in its shape; None begins with random ones.
      schedule: how the learning rate falls; "exponential", with
        rate(step) = max(minimum, learning_rate * decay_rate ** (step / decay_steps)), or "cosine", with
        rate(step) = minimum + (learning_rate - minimum) * (1 + cos(pi * step / steps of the run)) / 2.
      learning_rate, decay_rate, decay_steps, minimum_learning_rate: of the schedule; "cosine" has no decay.
      warmup_steps: the rate of "cosine" first rises from 0 in so many steps.
      weight_decay: each step takes this share of the learning rate away from every weight but biases (AdamW).
      average: momentum of an exponential average of the weights, in (0, 1); what is validated and kept is then the
        average. None keeps the weights themselves.
      gradient_clip: bound on the global gradient norm; None leaves gradients alone.
      precision: Keras dtype policy. Routing stays in float32 whatever it says.
      xla: compile the training step with XLA.
      checkpoint_steps: steps between checkpoints; what a killed run can lose.
      stop_at_error: the run ends with the first epoch whose error is at most this share, and keeps the weights of that
        epoch; None trains all epochs. Schedules still count the planned epochs.
      stop_split: whose error that is. "test" is for models that are to be compared at equal test errors (Hinton et
        al. 2018, Table 2); it needs stop_at_error, and otherwise no test image is ever looked at.
    """

    epochs: int = 10
    batch_size: int = 128
    images: int | None = None
    seed: int = 0
    start_from: str | None = None
    schedule: typing.Literal["exponential", "cosine"] = "exponential"
    learning_rate: float = 1e-3
    decay_rate: float = 0.96
    decay_steps: int = 2000
    minimum_learning_rate: float = 1e-6
    warmup_steps: int = 0
    weight_decay: float = 0.0
    average: float | None = None
    gradient_clip: float | None = 10.0
    precision: typing.Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    xla: bool = False
    checkpoint_steps: int = 200
    stop_at_error: float | None = None
    stop_split: typing.Literal["validation", "test"] = "validation"

    def __post_init__(self):
        for name in ("epochs", "batch_size", "decay_steps", "checkpoint_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name}: must be at least 1. Received: {getattr(self, name)}")
        if self.images is not None and self.images < 1:
            raise ConfigError(f"train.images: must be at least 1 or null. Received: {self.images}")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"train.seed: must be in [0, 2^32). Received: {self.seed}")
        for name in ("learning_rate", "decay_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(
                    f"train.{name}: must be positive and finite. Received: {getattr(self, name)}"
                )
        for name in ("minimum_learning_rate", "weight_decay", "warmup_steps"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"train.{name}: must be at least 0. Received: {getattr(self, name)}")
        if self.warmup_steps and self.schedule != "cosine":
            raise ConfigError(f"train.warmup_steps: only 'cosine' warms up. Received: {self.schedule!r}")
        if self.average is not None and not 0 < self.average < 1:
            raise ConfigError(f"train.average: must be in (0, 1) or null. Received: {self.average}")
        if self.gradient_clip is not None and not self.gradient_clip > 0:
            raise ConfigError(
                f"train.gradient_clip: must be positive or null. Received: {self.gradient_clip}"
            )
        if self.stop_at_error is not None and not 0 <= self.stop_at_error < 1:
            raise ConfigError(
                f"train.stop_at_error: must be a share in [0, 1) or null. Received: {self.stop_at_error}"
            )
        if self.stop_split == "test" and self.stop_at_error is None:
            raise ConfigError("train.stop_split: 'test' needs train.stop_at_error. Received: null")


@dataclasses.dataclass(frozen=True)
class CardConfig:
    """What a preset's card says that cannot be measured.

    where:
      title: one line for listings.
      routing: what routes, e.g. "dynamic" or "em"; what presets are filtered by.
      reference: where in the paper the number stands that the preset aims at.
      deviations: how the preset differs from the paper.
      protocols: the evaluations of this preset, each with the paper's value as a share (null: the paper has none).
    """

    title: str = ""
    routing: str = ""
    reference: str = ""
    deviations: tuple[str, ...] = ()
    protocols: dict[str, float | None] = dataclasses.field(default_factory=dict)
