"""Which presets there are, and what is known of them."""

import fnmatch
import re

from capszoo.config import ConfigError, nearest
from capszoo.zoo import recipes
from capszoo.zoo.presets import get_preset
from capszoo.zoo.recipes import RUN, names


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

    >>> list_models("matrix_em_*norb*", pretrained=True)
    ['matrix_em_smallnorb', 'matrix_em_smallnorb_normalised']
    """
    presets = [get_preset(name) for name in names()]
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
            raise ConfigError(f"{key}: no preset has {value!r}{nearest(value, known)}")
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
    """What is known of a preset, as Markdown: its card, or the recipe's own words where there are no weights.

    >>> print(describe("matrix_em_mnist").splitlines()[0])
    # matrix_em_mnist
    """
    preset = get_preset(name)
    if preset.card:
        return preset.card.to_markdown()
    path = preset.run / RUN if preset.run else recipes.folder() / f"{preset.name}.yaml"
    text = path.read_text(encoding="utf-8")
    return f"# {preset.name}\n\nNo weights are published. The recipe:\n\n```yaml\n{text}```\n"
