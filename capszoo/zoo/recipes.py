"""Recipes: the YAML files of `zoo_configs/`, parsed and checked against the models and data sets they name."""

import dataclasses
import warnings
from pathlib import Path

from capszoo import config
from capszoo.search.recipe import parse_recipe
from capszoo.training.recipe import Recipe, dataset_of, register, without_repetition
from capszoo.zoo import locating
from capszoo.zoo.card import read_card


def folder() -> Path:
    """Where the recipes lie: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "zoo_configs"
    return installed if installed.is_dir() else package.parent / "zoo_configs"


# In the folder of a run.
RUN = "recipe.yaml"


def is_run(name: str) -> bool:
    """Whether `name` is the folder of a run rather than a preset; one with a preset's name is meant by `./NAME`."""
    return (Path(name) / RUN).is_file() and str(name) not in names()


def is_published(name: str) -> bool:
    """Whether `name` is the folder of a preset outside the package; one with a preset's name is meant by `./NAME`."""
    folder = Path(name)
    return (folder / locating.CARD).is_file() and not (folder / RUN).is_file() and str(name) not in names()


def named(folder: str | Path) -> str:
    """The folder of a run as commands take it: one with a preset's name as `./NAME`."""
    return f"./{folder}" if str(folder) in names() else str(folder)


# Names that presets had before.
FORMER_NAMES = {
    "dense_mnist": "unmasked_mnist",
    "dense_mnist_expanded": "unmasked_mnist_expanded",
    "dense_mnist_expanded_small": "unmasked_mnist_expanded_small",
    "learned_em_mnist": "consensus_em_mnist",
    "learned_em_smallnorb": "consensus_em_smallnorb",
}


def current_name(name: str) -> str:
    """The name that a preset has now; warns where it had another one before."""
    if name not in FORMER_NAMES:
        return name
    warnings.warn(f"the preset {name!r} is called {FORMER_NAMES[name]!r} now.", FutureWarning, stacklevel=3)
    return FORMER_NAMES[name]


def names() -> list[str]:
    """The names of all presets: of the recipes in `zoo_configs/`, and of weights published from recipes elsewhere."""
    written = (path.stem for path in folder().glob("*.yaml"))
    published = (path.parent.name for path in locating.weights_folder().glob(f"*/{locating.CARD}"))
    return sorted({*written, *published})


def mapping_of(name: str) -> dict:
    """A preset's recipe as plain data: as written in `zoo_configs/`, or else in the card of its weights.

    Errors: `ConfigError` naming the nearest preset; for the path of a folder saying what it has not.
    """
    if is_published(name):
        return _of_card(Path(name))
    if name not in names():
        if Path(name).is_file():
            raise config.ConfigError(
                f"a preset's name or a folder is needed. Received the file {name}: keras.saving.load_model reads a "
                ".keras file, and capszoo.load(NAME, weights=FILE) one of safetensors."
            )
        if len(Path(name).parts) > 1 or Path(name).is_dir():
            raise config.ConfigError(
                f"{name} is no preset and no folder of one or of a run: it has neither {locating.CARD} nor {RUN}."
            )
        raise config.ConfigError(f"unknown preset {name!r}{config.nearest(name, names())}")
    path = folder() / f"{name}.yaml"
    if path.is_file():
        return config.read_yaml(path)
    return _of_card(locating.weights_folder() / name)


def _of_card(folder):
    card = read_card(folder / locating.CARD)
    return {**without_repetition(card.recipe), "card": card.described()}


def read_recipe(name_or_path, overrides=()) -> Recipe:
    """The recipe of a preset's name, of a YAML file or of a folder, with `section.key=value` laid over it.

    The folder is that of a run, or of a preset outside the package.

    On data of another benchmark the paper's values are left out: it has none of them. On another data set, laid over by
    `data.name`, so are protocols that cannot be measured there and, with a warning, options that it does not have.
    Errors: `ConfigError` for an unknown name or file, and for whatever the file or an override gets wrong.
    """
    if is_run(name_or_path):
        name_or_path = Path(name_or_path) / RUN
    name_or_path = current_name(str(name_or_path))
    path = Path(name_or_path)
    is_file = path.suffix in (".yaml", ".yml")
    written = config.read_yaml(path) if is_file else mapping_of(name_or_path)
    name = path.stem if is_file else name_or_path
    if path.name == RUN:
        name, written = path.resolve().parent.name, without_repetition(written)
    elif is_published(name_or_path):
        name = path.resolve().name
    # Read more than once.
    overrides = overrides if isinstance(overrides, str) else tuple(overrides)
    _require_known_stages(written.get("stages"), overrides)
    try:
        recipe = parse_recipe(name, _laid_over(written, overrides))
        require_numbers(recipe.card.protocols)
        before, now = written.get("data") or {}, config.to_mapping(recipe.data)
        # What the recipe leaves open is what it is given; options of another section say nothing of its own.
        of_section = before.get("name", now["name"]) == now["name"]
        dataset = dataset_of({**now, **before} if of_section else before)
        if dataset != recipe.data.set_name:
            card = _on_other_data(recipe)
            same = _benchmark(name, written) == recipe.data.benchmark
            recipe = dataclasses.replace(recipe, card=card if same else card.without_papers())
        return dataclasses.replace(recipe, dataset=dataset)
    except config.ConfigError as error:
        raise config.ConfigError(f"{name}.yaml: {error}") from error


def _on_other_data(recipe):
    """The card of `recipe` with those of its protocols that can be measured on its data, or else with test errors."""
    protocols = recipe.card.protocols
    kept = [name for name in protocols if _is_measurable(name, recipe)]
    kept = kept or [name for name in ("test_error",) if _is_measurable(name, recipe)]
    return dataclasses.replace(recipe.card, protocols={name: protocols.get(name) for name in kept})


def _is_measurable(protocol, recipe):
    from capszoo.protocols import get_protocol

    try:
        get_protocol(protocol).require_recipe(recipe)
    except config.ConfigError:
        return False
    except FileNotFoundError:  # `DataNotFound`, which is not imported without Keras
        pass
    return True


def _benchmark(name, written):
    """The benchmark that a recipe is written for; None where its data are not there, or only overrides say them."""
    try:
        return parse_recipe(name, written).data.benchmark
    except (config.ConfigError, FileNotFoundError):  # `DataNotFound`, which is not imported without Keras
        return None


def _laid_over(written, overrides):
    """The recipe with `overrides` over it. On another data set, options of the recipe that it lacks are left out."""
    mapping = config.apply_overrides(written, overrides)
    given = config.apply_overrides({}, overrides).get("data", {})
    before = written.get("data")
    if not isinstance(before, dict) or "name" not in given or given["name"] == before.get("name"):
        return mapping
    register()
    # One that nobody knows is refused by name when the recipe is parsed.
    if not isinstance(given["name"], str) or given["name"] not in config.sections("data"):
        return mapping
    known = config.sections("data")[given["name"]]
    options = {"name", *(field.name for field in dataclasses.fields(known))}
    lost = [key for key in before if key not in options and key not in given]
    if lost:
        names = ", ".join(f"data.{key}" for key in lost)
        warnings.warn(f"{names} of the recipe left out: {given['name']!r} has no such options.", stacklevel=3)
    mapping["data"] = {key: value for key, value in mapping["data"].items() if key not in lost}
    return mapping


def require_numbers(protocols):
    """Errors: `ConfigError` for a name of no protocol, and for one that gives a report, while a card has numbers."""
    from capszoo.protocols import NumberProtocol
    from capszoo.protocols import protocols as registered

    known = registered()
    for name in protocols:
        if name not in known:
            raise config.ConfigError(
                f"card.protocols: unknown protocol {name!r}{config.nearest(name, known)}"
            )
        if not issubclass(known[name], NumberProtocol):
            raise config.ConfigError(f"card.protocols: {name!r} gives a report, and a card has numbers.")


def _require_known_stages(stages, overrides):
    """Errors: `ConfigError` for an override of a stage that a recipe of stages does not have: it would be one more."""
    for override in overrides if isinstance(stages, dict) else ():
        section, _, rest = override.partition(".")
        name = rest.partition(".")[0]
        if section == "stages" and name not in stages:
            raise config.ConfigError(f"stages.{name}: unknown stage{config.nearest(name, stages)}")
