"""Presets: the registry of named models, and what list, describe, create and load read from it.

A preset is a recipe in `zoo_configs/`; where there are weights it also has a folder with
  card.json             everything known of the weights,
  weights.safetensors   the weights,
  check.safetensors     a fixed input and the outputs it must give.
Nothing here imports Keras until a model is made.
"""

import dataclasses
import fnmatch
import os
import re
import warnings
from pathlib import Path

import platformdirs

from capszoo import config, recipes
from capszoo.card import Card, read_card
from capszoo.integrity import IntegrityError, verify_file

WEIGHTS, CHECK, CARD = "weights.safetensors", "check.safetensors", "card.json"
# Largest deviation from the stored outputs that another machine's arithmetic may cause.
CHECK_TOLERANCE = 1e-4


class WeightsNotFound(FileNotFoundError):
    """Weights that are nowhere they could be."""


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named model: its recipe as plain data, and the card of its weights where it has any."""

    name: str
    mapping: dict
    card: Card | None

    @property
    def recipe(self):
        """The parsed `capszoo.recipes.Recipe`; of the weights, where there are any. Imports Keras."""
        mapping = {**self.mapping, **self.card.recipe} if self.card else self.mapping
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


def weights_folder() -> Path:
    """Where the weights inside the package lie."""
    return Path(__file__).parent / "weights"


def cache_folder() -> Path:
    """`CAPSZOO_HOME`, or the user's cache folder: where downloaded weights are kept."""
    return Path(os.environ.get("CAPSZOO_HOME") or platformdirs.user_cache_dir("capszoo"))


def get_preset(name: str) -> Preset:
    """The preset of that name. Errors: `ConfigError` naming the nearest one."""
    if name not in recipes.names():
        raise config.ConfigError(f"unknown preset {name!r}{config.nearest(name, recipes.names())}")
    mapping = config.read_yaml(recipes.folder() / f"{name}.yaml")
    card = weights_folder() / name / CARD
    return Preset(name, mapping, read_card(card) if card.is_file() else None)


def write_card(card: Card, folder: Path):
    """Writes `card.json`, and `README.md` for people, into the folder of a preset."""
    for name, text in ((CARD, card.to_json()), ("README.md", card.to_markdown())):
        temporary = folder / f".{name}.{os.getpid()}"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(folder / name)


def list_models(
    pattern: str = "*",
    *,
    architecture: str | None = None,
    routing: str | None = None,
    dataset: str | None = None,
    trained_on: str | None = None,
    licence: str | None = None,
    max_parameters: int | None = None,
    pretrained: bool | None = None,
    exports: str | None = None,
) -> list[str]:
    """Names of the presets that match a shell pattern and every filter given, in natural order.

    where:
      pattern: e.g. "*norb*".
      architecture, routing, dataset: names as in the recipe; trained_on: the data that the weights have really seen.
      licence: of the weights, e.g. "Apache-2.0"; max_parameters: most parameters.
      pretrained: True for presets with weights, False for those without.
      exports: an exported format that the card has measured, e.g. "litert-float16".

    trained_on, licence, max_parameters and exports are facts of weights: presets without weights do not match them.
    Errors: `ConfigError` for a value that no preset has, naming the nearest one that some preset has.
    """
    presets = [get_preset(name) for name in recipes.names()]
    facts = {
        "architecture": (architecture, lambda p: {p.architecture}),
        "routing": (routing, lambda p: {p.routing}),
        "dataset": (dataset, lambda p: {p.dataset}),
        "trained_on": (trained_on, lambda p: {p.card.trained_on} if p.card else set()),
        "licence": (licence, lambda p: {p.card.licence} if p.card else set()),
        "exports": (exports, lambda p: set(p.card.exports) if p.card else set()),
    }
    kept = [p for p in presets if fnmatch.fnmatchcase(p.name, pattern)]
    for key, (value, of) in facts.items():
        if value is None:
            continue
        known = set().union(*map(of, presets))
        if value not in known:
            raise config.ConfigError(f"{key}: no preset has {value!r}{config.nearest(value, known)}")
        kept = [p for p in kept if value in of(p)]
    if max_parameters is not None:
        kept = [p for p in kept if p.card and p.card.parameters <= max_parameters]
    if pretrained is not None:
        kept = [p for p in kept if (p.card is not None) == pretrained]
    return sorted((p.name for p in kept), key=_natural)


def _natural(name):
    """Sorting key in which mnist9 comes before mnist10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def describe(name: str) -> str:
    """What is known of a preset, as Markdown: its card, or the recipe's own words where there are no weights."""
    preset = get_preset(name)
    if preset.card:
        return preset.card.to_markdown()
    text = (recipes.folder() / f"{name}.yaml").read_text(encoding="utf-8")
    return f"# {name}\n\nNo weights are published. The recipe:\n\n```yaml\n{text}```\n"


def create(name: str, *, num_classes: int | None = None, overrides=()):
    """The untrained model of a preset, a `keras.Model` with `.preset` and `.preprocess`.

    where:
      num_classes: another number of classes than the data set's.
      overrides: `section.key=value` texts laid over the recipe.

    Errors: `ConfigError` for an unknown preset or override.
    """
    recipe = recipes.read_recipe(name, overrides)
    # Without the card: it speaks of the published weights, which this model does not have.
    return _equip(recipe.build(num_classes), dataclasses.replace(get_preset(name), card=None), recipe)


def load(name: str, *, num_classes: int | None = None, weights: str | Path | None = None):
    """The pretrained model of a preset, a `keras.Model` with `.preset` and `.preprocess`.

    where:
      name: a preset, see `list_models(pretrained=True)`.
      num_classes: another number of classes. The class capsules, and what is sized by them, are then new and
        untrained; everything below keeps its weights.
      weights: a safetensors file to load instead of the published one.

    Weights are looked for in `CAPSZOO_HOME`, in the package, in `export/` of a checkout, then at
    `CAPSZOO_RELEASE_URL`; the first file found must have the SHA-256 of the card. The loaded model must then give the
    stored outputs for the stored input.
    Warns if the weights were trained on other data than the preset's name says.
    Errors: `ConfigError` for an unknown preset; `WeightsNotFound` saying where was looked; `IntegrityError` for a
    file that is not the published one or a model that does not behave like it; `WeightsError` for weights that do not
    fit, naming every variable.
    """
    from capszoo.weight_files import load_weights

    preset = get_preset(name)
    if weights is None and preset.card is None:
        raise WeightsNotFound(
            f"no weights are published for {name!r}. Train it: capszoo train {name}; or an untrained model: "
            f"capszoo.create({name!r}). With weights: {', '.join(list_models(pretrained=True)) or 'none'}."
        )
    path = Path(weights) if weights is not None else find_file(preset, WEIGHTS)
    recipe = preset.recipe
    model = recipe.build(num_classes)
    new_head = num_classes is not None and num_classes != recipe.data.num_classes
    load_weights(model, path, fresh=recipe.model.head if new_head else ())
    if weights is None and not new_head:
        _check_behaviour(preset, model)
    if weights is None and preset.card.trained_on != preset.dataset:
        warnings.warn(
            f"{name}: these weights were trained on {preset.card.trained_on}, not on {preset.dataset}; "
            f"their numbers are not {preset.dataset} results.",
            stacklevel=2,
        )
    return _equip(model, preset, recipe)


def find_file(preset: Preset, file: str) -> Path:
    """Where a file of a published preset lies, verified against its card; downloads it where nothing is nearer.

    Errors: `WeightsNotFound` saying what was wanted and where it was looked for; `IntegrityError`.
    """
    folders = [
        cache_folder() / "weights",
        weights_folder(),
        Path(__file__).parent.parent / "export" / "weights",
    ]
    candidates = [folder / preset.name / file for folder in folders]
    expected = preset.card.files[file]
    for path in candidates:
        if path.is_file():
            verify_file(path, expected.sha256, expected.bytes)
            return path
    looked = "\n  ".join(map(str, candidates))
    url = os.environ.get("CAPSZOO_RELEASE_URL")
    if not url:
        raise WeightsNotFound(
            f"{file} of {preset.name} is not here. Looked for\n  {looked}\n"
            "and CAPSZOO_RELEASE_URL, from which it could be downloaded, is not set."
        )
    return _download(f"{url.rstrip('/')}/{preset.name}/{file}", candidates[0], expected.sha256)


def _download(url, target, sha256):
    import pooch

    try:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", target.name, target.parent, progressbar=False))
    except ValueError as error:
        raise IntegrityError(f"{url} is not the published file: {error}") from error
    except OSError as error:
        raise WeightsNotFound(f"{url} could not be downloaded: {error}") from error


def _check_behaviour(preset, model):
    """Errors: `IntegrityError` unless `model` gives the published outputs for the published input."""
    import numpy as np

    from capszoo.weight_files import read_arrays

    stored, _ = read_arrays(find_file(preset, CHECK))
    outputs = model.predict_on_batch(stored["images"])
    for name in ("scores", "poses"):
        deviation = float(np.abs(np.asarray(outputs[name]) - stored[name]).max())
        if not deviation <= CHECK_TOLERANCE:
            raise IntegrityError(
                f"{preset.name}: {name} for the stored input differ by {deviation:.2g} from the published ones "
                f"(allowed: {CHECK_TOLERANCE}). The weights do not belong to this version of the architecture."
            )


def _equip(model, preset, recipe):
    from capszoo.data.preprocessing import Preprocessing

    model.preset = dataclasses.replace(preset, mapping={**preset.mapping, **recipe.to_mapping()})
    model.preprocess = Preprocessing(**recipe.data.preprocessing)
    return model
