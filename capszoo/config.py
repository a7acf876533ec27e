"""Strict typed configuration: recipes are YAML data parsed into frozen dataclasses.

A recipe has sections. Some, such as `model` and `data`, name a registered dataclass (`name: dynamic`, `name: mnist`)
and give only what differs from its defaults. Unknown keys, wrong types and illegal values are
errors that name the key and the nearest valid one. Parsing never runs code from the file.
"""

import collections.abc
import contextlib
import copy
import dataclasses
import difflib
import functools
import math
import types
import typing
from pathlib import Path

import yaml

# The longest recipe of the zoo has some 5,000 bytes and four levels.
MAX_BYTES = 2**18
MAX_DEPTH = 16


class ConfigError(ValueError):
    """A recipe or an override that cannot mean what it says."""


_SECTIONS: dict[str, dict[str, type]] = {}


def require_at_least(options, least, *names: str):
    """Errors: `ValueError` naming the first of the fields `names` of `options` that is, or holds one, below `least`."""
    for name in names:
        value = getattr(options, name)
        # "Not at least" is true of NaN too.
        if not all(number >= least for number in (value if isinstance(value, tuple | list) else (value,))):
            raise ValueError(f"{name} must be at least {least}. Received: {value}")


def require_equally_many(options, *names: str):
    """Errors: `ValueError` for fields `names` of `options`, tuples, that are empty or not of one length."""
    values = [getattr(options, name) for name in names]
    if len(set(map(len, values))) > 1 or not values[0]:
        *others, last = names
        received = ", ".join(map(str, values))
        raise ValueError(f"{', '.join(others)} and {last} must be equally many. Received: {received}")


def require_at_most(options, **limits):
    """Errors: `ValueError` naming the first field of `options` that is above its limit: memory would not hold it."""
    for name, most in limits.items():
        if not getattr(options, name) <= most:
            raise ValueError(f"{name} must be at most {most:,}. Received: {getattr(options, name):,}")


def section(kind: str, name: str):
    """Registers a frozen dataclass as what `name: <name>` means in section `kind` of a recipe.

    Errors: `ValueError` for a name that another class has, and for a class that has another name.
    """

    def register(cls):
        if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:
            raise TypeError(f"a section must be a frozen dataclass. Received: {cls!r}")
        known = _SECTIONS.get(kind, {}).get(name)
        # A module that is loaded anew makes its classes anew.
        if known and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{kind} {name!r} is {known.__module__}.{known.__qualname__}. Received: {cls!r}")
        if vars(cls).get("section_name", name) != name:
            raise ValueError(f"{cls!r} is {kind} {cls.section_name!r} already. Received: {name!r}")
        cls.section_name = name
        _SECTIONS.setdefault(kind, {})[name] = cls
        return cls

    return register


def sections(kind: str) -> dict[str, type]:
    """The registered dataclasses of one section, by name."""
    return dict(_SECTIONS.get(kind, {}))


def registered() -> list[type]:
    """The registered dataclasses of all sections."""
    return [cls for known in _SECTIONS.values() for cls in known.values()]


def nearest(name: str, valid) -> str:
    """`; did you mean 'x'?` where something near exists, and the list of what is valid."""
    valid = sorted(map(str, valid))
    by_lower = {each.lower(): each for each in valid}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.5)
    hint = f"; did you mean {by_lower[close[0]]!r}?" if close else "."
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
        plugin = "One from elsewhere is known once --import names its module."
        raise ConfigError(f"{where}.name: unknown {kind} {name!r}{nearest(name, known)} {plugin}")
    _require_declared(known[name], where)
    options = {key: value for key, value in mapping.items() if key != "name"}
    return parse(known[name], options, where)


def _require_declared(cls, where):
    """Errors: `ConfigError` naming what `cls` should say of itself, by the annotations of its bases, and does not."""
    fields = {field.name for field in dataclasses.fields(cls)}
    declared = [name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())]
    missing = sorted({name for name in declared if name not in fields and not hasattr(cls, name)})
    if missing:
        raise ConfigError(f"{where}: {cls.__name__} must say what its {', '.join(missing)} is.")


def parse(cls, mapping, where: str = ""):
    """Builds the frozen dataclass `cls` from plain YAML data, strictly.

    Errors: `ConfigError` naming the dotted key, what was received and what is valid.
    """
    if not isinstance(mapping, dict):
        raise ConfigError(f"{where or cls.__name__}: a mapping is needed. Received: {mapping!r}")
    hints, values = _hints(cls), {}
    for key, value in mapping.items():
        dotted = f"{where}.{key}" if where else str(key)
        if key not in hints:
            raise ConfigError(f"{dotted}: unknown key{nearest(key, hints)}")
        values[key] = _typed(hints[key], value, dotted)
    try:
        return cls(**values)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where or cls.__name__}: {error}") from error


@functools.cache
def _hints(cls):
    """Types of the fields of a dataclass, by name."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _typed(hint, value, where):
    """`value` as the annotated type; the only conversions are int -> float, '1e-3' -> float and list -> tuple."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(value) in arguments:
            return _typed(type(value), value, where)
        first, *others = [argument for argument in arguments if argument is not type(None)]
        for other in others:
            with contextlib.suppress(ConfigError):
                return _typed(other, value, where)
        return _typed(first, value, where)
    if origin is typing.Literal:
        # 3.0 and True are no 3 and no 1 to whoever reads them.
        if not any(value == argument and type(value) is type(argument) for argument in arguments):
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
                number = float(value)
            except (ValueError, OverflowError):
                number = math.nan
            # NaN passes most checks of a range, and is no setting.
            if not math.isnan(number):
                return number
    elif isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        if hint is int and not -(2**63) <= value < 2**63:
            raise ConfigError(
                f"{where}: expected an integer of 64 bits. Received one of {value.bit_length()}."
            )
        return value
    raise ConfigError(f"{where}: expected {getattr(hint, '__name__', hint)}. Received: {value!r}")


def _typed_tuple(arguments, value, where):
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where}: expected a list. Received: {value!r}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    if len(arguments) != len(value):
        raise ConfigError(f"{where}: expected a list of {len(arguments)}. Received: {value!r}")
    # Of curves there are thousands of numbers.
    return tuple(
        item
        if hint is float and type(item) is float and not math.isnan(item)
        else _typed(hint, item, f"{where}[{i}]")
        for i, (hint, item) in enumerate(zip(arguments, value, strict=True))
    )


def to_mapping(config) -> dict:
    """The plain data that `parse` (or `parse_section`, where a name is registered) turns into `config` again."""
    data = {"name": config.section_name} if hasattr(config, "section_name") else {}
    for field in dataclasses.fields(config):
        data[field.name] = _plain(getattr(config, field.name))
    return data


def _plain(value):
    if dataclasses.is_dataclass(value):
        return to_mapping(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses what YAML lets pass and no recipe needs.

    A key given twice, which would hide the first; aliases, which unfold a few lines into gigabytes; and values nested
    so deep that reading them exhausts Python's stack.
    """

    def __init__(self, stream):
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent, index):
        mark = self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            raise ConfigError(f"{mark.name}: line {mark.line + 1}: aliases are not allowed in a recipe.")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ConfigError(f"{mark.name}: line {mark.line + 1}: nested deeper than {MAX_DEPTH} levels.")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        seen = set()
        # What is not hashable is refused below.
        for key in (key for key in keys if isinstance(key, collections.abc.Hashable)):
            if key in seen:
                mark = node.start_mark
                raise ConfigError(
                    f"{mark.name}: the key {key!r} is given twice in the mapping at line {mark.line + 1}."
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path) -> dict:
    """A YAML file as plain data.

    Errors: `ConfigError` naming the file and the line that cannot be read; for a file of more than `MAX_BYTES`, for
    aliases, and for more than `MAX_DEPTH` levels of nesting.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            contents = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such recipe file.") from error
    if len(contents) > MAX_BYTES:
        raise ConfigError(f"{path}: a recipe has at most {MAX_BYTES:,} bytes.")
    data = _parsed(contents, str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a mapping of sections is needed. Received: {data!r}")
    return copy.deepcopy(data)


@functools.lru_cache(maxsize=256)
def _parsed(contents, name):
    """See `_loaded`; a table of a paper reads the same recipes hundreds of times."""
    return _loaded(contents, name)


def _loaded(contents, name):
    try:
        loader = _StrictLoader(contents)
        loader.name = name
        return loader.get_single_data()
    except ConfigError:
        raise
    # Of numbers of thousands of digits and of days that there are not, the parser says a plain `ValueError`; of a value
    # that its tag cannot have, such as `!!bool x`, whatever its code runs into.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from error


def apply_overrides(mapping: dict, overrides) -> dict:
    """A copy of `mapping` with `section.key=value` overrides laid over it; values are read as YAML.

    Errors: `ConfigError` for one text instead of several, for an override without `=`, one that goes through something
    that is no mapping, and a value that is not valid YAML.
    """
    if isinstance(overrides, str):
        raise ConfigError(f"overrides are several texts, in a list. Received: the text {overrides!r}")
    result = copy.deepcopy(mapping)
    for override in overrides:
        dotted, equals, text = override.partition("=")
        if not equals or "." not in dotted:
            raise ConfigError(f"an override is written section.key=value. Received: {override!r}")
        *path, key = dotted.strip().split(".")
        target = result
        for depth, part in enumerate(path, start=1):
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise ConfigError(
                    f"{'.'.join(path[:depth])}: cannot be overridden by key. Received: {override!r}"
                )
        target[key] = _loaded(text, override)
    return result
