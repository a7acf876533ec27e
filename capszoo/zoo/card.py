"""Cards: what is known of a preset's weights, as structured data."""

import dataclasses
import json
from pathlib import Path

from capszoo import config
from capszoo.protocols.measurement import Measurement
from capszoo.search.record import SearchRecord
from capszoo.training.files import write_text
from capszoo.training.recipe import dataset_of
from capszoo.zoo.locating import CARD

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class WeightFile:
    """A file of a preset: its SHA-256, its size and the type its numbers are stored in."""

    sha256: str
    bytes: int
    dtype: str


@dataclasses.dataclass(frozen=True)
class ExportedFormat:
    """An exported artefact: bytes, largest deviations from the Keras model by output, and errors on the test split.

    A network without classes makes none, and of an artefact that was only built they are not known: `wrong` and `n` are
    None. `speed` is its images per second by batch size, as multiples of the Keras model's where both ran in turns.
    `sha256` is that of its files, one after the other, see `capszoo.exporting.artefacts.checksum`.
    """

    bytes: int
    deviations: dict[str, float]
    wrong: int | None
    n: int | None
    speed: dict[str, float] = dataclasses.field(default_factory=dict)
    sha256: str = ""

    def errors(self) -> str:
        """The errors as text."""
        return f"{self.wrong / self.n:.2%} ({self.wrong} of {self.n})" if self.n else "not measured"


@dataclasses.dataclass(frozen=True)
class Speed:
    """Images per second of the Keras model in training and in inference, `batch` at a time, and on what machine."""

    training: float
    inference: float
    batch: int
    processor: str
    libraries: str

    def sentence(self) -> str:
        """The speed in words."""
        speeds = f"{self.training:,.0f} images/s in training, {self.inference:,.0f} in inference"
        return f"{speeds}, {self.batch} images a batch"


@dataclasses.dataclass(frozen=True)
class Card:
    """Everything there is to know of a preset's weights before loading them.

    where:
      name, title: the preset and one line about it.
      architecture, routing: names of the model section and of its routing.
      paper, reference, deviations: what it implements, which number it aims at, how it differs.
      parameters: how many numbers of the inference model are learnt.
      dataset: the data set in the preset's name; trained_on: what the weights have really seen.
      training_split, training_fingerprint, preprocessing: which images those were.
      recipe: every value of the recipe; training: what the run reported (steps, validation error, images/s).
      stages: the same of each stage that was trained before, by its name.
      metrics: `Measurement`s, written by the evaluation command.
      licence, data_licence: of the weights and of the data; the former "" where none is given.
      files: files of the preset by name; exports: exported formats by name.
      search: how values of the recipe were found, see `SearchRecord`; None where nobody searched.
      speed: of the Keras model, see `capszoo.benchmarking.record_speeds`; None where nobody measured it.
    """

    name: str
    title: str
    architecture: str
    routing: str
    paper: str
    reference: str
    deviations: tuple[str, ...]
    parameters: int
    dataset: str
    trained_on: str
    training_split: str
    training_fingerprint: str
    preprocessing: str
    recipe: dict[str, dict]
    training: dict[str, float | int | str]
    metrics: tuple[Measurement, ...]
    licence: str
    data_licence: str
    files: dict[str, WeightFile]
    exports: dict[str, ExportedFormat]
    date: str
    revision: str
    format: int = FORMAT
    search: SearchRecord | None = None
    stages: dict[str, dict[str, float | int | str]] = dataclasses.field(default_factory=dict)
    speed: Speed | None = None

    def described(self) -> dict:
        """What the card section of a recipe says, see `capszoo.training.recipe.CardConfig`."""
        return {
            "title": self.title,
            "routing": self.routing,
            "reference": self.reference,
            "licence": self.licence,
            "deviations": list(self.deviations),
            "protocols": {metric.protocol: metric.paper for metric in self.metrics},
        }

    def to_json(self) -> str:
        """The card as the text of `card.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n"

    def to_markdown(self) -> str:
        """The card as a page for people."""
        rows = {
            "architecture": f"{self.architecture}, {self.routing} routing, {self.parameters:,} parameters",
            "paper": f"{self.paper}; {self.reference}",
            "trained on": f"{self.trained_on} ({self.training_split}), {self.preprocessing}",
            **{f"stage {name}": _listed(facts) for name, facts in self.stages.items()},
            "training": _listed(self.training),
            **({"speed": f"{self.speed.sentence()}; {self.speed.processor}"} if self.speed else {}),
            "licence": f"{self.licence or 'none given'}; data: {self.data_licence}",
            "published": f"{self.date}, revision {self.revision}",
        }
        lines = [f"# {self.name}", "", self.title, "", "| | |", "| --- | --- |"]
        lines += [f"| {key} | {value} |" for key, value in rows.items()]
        lines += ["", "## Measured", ""] + [f"- {m.sentence()} (`{m.command}`)" for m in self.metrics]
        lines += ["", "## Differs from the paper", ""] + [f"- {text}" for text in self.deviations]
        lines += ["", "## Files", "", "| file | numbers | bytes | sha256 |", "| --- | --- | --- | --- |"]
        lines += [f"| {name} | {f.dtype} | {f.bytes:,} | `{f.sha256}` |" for name, f in self.files.items()]
        if self.exports:
            outputs = list(next(iter(self.exports.values())).deviations)
            sizes = list(next(iter(self.exports.values())).speed)
            header = ["format", "bytes", *(f"{output} differ by" for output in outputs), "test error"]
            header += [*(f"speed at batch {size}, Keras = 1" for size in sizes), "sha256"]
            lines += ["", "## Exports", "", f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
            for name, e in self.exports.items():
                differ = [f"{e.deviations[output]:.1e}" for output in outputs]
                speeds = [f"{e.speed[size]:.2f}" if size in e.speed else "" for size in sizes]
                cells = [
                    name,
                    f"{e.bytes:,}",
                    *differ,
                    e.errors(),
                    *speeds,
                    f"`{e.sha256}`" if e.sha256 else "",
                ]
                lines.append(f"| {' | '.join(cells)} |")
        if self.search:
            lines += ["", "## Search", "", self.search.to_markdown().rstrip()]
        return "\n".join(lines) + "\n"


def _listed(facts):
    return ", ".join(f"{key} {value}" for key, value in facts.items())


def read_card(path) -> Card:
    """The card in a `card.json`. Errors: `ConfigError` naming what is wrong with the file."""
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise config.ConfigError(f"{path}: not a readable card: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        received = data.get("format") if isinstance(data, dict) else data
        raise config.ConfigError(f"{path}: card format {FORMAT} is needed. Received: {received!r}")
    card = config.parse(Card, data, str(path))
    # Cards said the name of the section once, where it reads many sets.
    known = card.recipe.get("data", {})
    now = {known.get("name"): dataset_of(known)} if known else {}
    return dataclasses.replace(
        card,
        dataset=now.get(card.dataset, card.dataset),
        trained_on=now.get(card.trained_on, card.trained_on),
    )


def check_card(card: Card):
    """Errors: `ConfigError` for a card that nobody could read again, such as one with a number that is NaN."""
    try:
        config.parse(Card, json.loads(card.to_json()), f"the card of {card.name}")
    except TypeError as error:
        raise config.ConfigError(f"the card of {card.name}: {error}") from error


def write_card(card: Card, folder: Path):
    """Writes `card.json`, and `README.md` for people, into the folder of a preset. Errors: as `check_card`."""
    check_card(card)
    for name, text in ((CARD, card.to_json()), ("README.md", card.to_markdown())):
        write_text(folder / name, text)
