"""From a cell to its number: which training it is, whether it is published, measured, running or missing."""

import collections
import dataclasses
import functools
import os
import shlex
from pathlib import Path

from capszoo import plugins
from capszoo.config import ConfigError
from capszoo.data.sources import DataNotFound
from capszoo.results.records import Record, key_of
from capszoo.results.tables import Cell, Table
from capszoo.training.files import Busy, locked
from capszoo.training.folder import BEST, stage_folder
from capszoo.training.recipe import Recipe
from capszoo.zoo import presets, recipes
from capszoo.zoo.card import Speed
from capszoo.zoo.integrity import sha256_of
from capszoo.zoo.locating import WEIGHTS
from capszoo.zoo.starting import find_start

# Hours for one number of published weights, or of a run that is there, at most.
MEASURING = 0.1
# The folder of the run itself, in that of its training.
RUN = "run"


@dataclasses.dataclass(frozen=True)
class Trial:
    """One training of a cell: what gives one of its numbers.

    where:
      table, name: of the table on the command line, and of the cell in it.
      overrides: the table's and then the cell's.
    """

    table: str
    name: str
    cell: Cell
    overrides: tuple[str, ...]
    seed: int

    @property
    def plain(self) -> bool:
        """Whether it is its recipe as it stands, on whatever data its table says: no ablation, no early stop."""
        laid_over = [override for override in self.overrides if not override.startswith("data.name=")]
        return not (laid_over or self.cell.stops_at)

    def __str__(self):
        return f"{self.table}: {self.name}, seed {self.seed}"


class Results:
    """The numbers of tables, wherever they are.

    where:
      papers: see `capszoo.results.tables.read_papers`.
      records: what was measured.
    """

    def __init__(self, papers, records):
        self.papers = papers
        self.records = {}
        for record in records:
            self.add(record)
        # Every cell asks for its state again and again, and recipes and cards are files.
        self._names = recipes.names()
        self._presets = functools.cache(presets.get_preset)
        self._recipe_of_preset = functools.cache(lambda name: self._presets(name).recipe)
        self._recipes = functools.cache(recipes.read_recipe)
        self._hash_of = functools.cache(sha256_of)

    def tables(self) -> dict[str, Table]:
        """All tables by name."""
        return {name: table for paper in self.papers for name, table in paper.tables.items()}

    def trials(self, table: str) -> list[Trial]:
        """The trainings that a table asks for."""
        known = self.tables()[table]
        return [
            Trial(table, name, cell, (*known.overrides, *cell.overrides), seed)
            for name, cell in known.cells.items()
            if cell.recipe
            for seed in cell.seeds
        ]

    def card(self, trial):
        """The card of the preset that a cell is, if its weights were trained on the cell's data; else None."""
        cell = trial.cell
        if not trial.plain or cell.recipe not in self._names or self.lacks(trial):
            return None
        preset = self._presets(cell.recipe)
        if preset.card is None:
            return None
        data = self._read(trial, trial.overrides).data
        return preset.card if preset.card.trained_on == data.set_name else None

    def published_card(self, trial):
        """The card of the published weights that a trial's training is, the seed too; else None."""
        card = self.card(trial)
        return card if card and card.recipe["train"]["seed"] == trial.seed else None

    def recipe(self, trial) -> Recipe | None:
        """What is trained; None while the number is missing that ends the training, and without its data."""
        if self.lacks(trial):
            return None
        if self.card(trial):
            return _seeded(self._recipe_of_preset(trial.cell.recipe), trial.seed)
        ends = self._ends(trial)
        if ends is None:
            return None
        return self._read(trial, (*trial.overrides, f"train.seed={trial.seed}", *ends))

    def lacks(self, trial) -> str:
        """Which data are not there that a trial's network is made for, in words; empty where they are."""
        try:
            self._read(trial, trial.overrides)
        except DataNotFound as error:
            return str(error)
        return ""

    def _read(self, trial, overrides):
        """The trial's recipe with `overrides` over it. Errors: `ConfigError` and `DataNotFound` naming the cell."""
        try:
            return self._recipes(trial.cell.recipe, overrides)
        except (ConfigError, DataNotFound) as error:
            raise type(error)(f"{trial}: {error}") from error

    def _ends(self, trial):
        """What ends a training early, as overrides; None while the number is missing that does."""
        if not trial.cell.stops_at:
            return ()
        cells = {other.name: other for other in self.trials(trial.table) if other.seed == trial.seed}
        record = self.record(cells[trial.cell.stops_at])
        if record is None:
            return None
        # Stages have the options of the training after them unless they say otherwise.
        stages = [
            f"stages.{stage.name}.train.{option}"
            for stage in self._read(trial, trial.overrides).stages
            for option in ("stop_at_error=null", "stop_split=validation")
        ]
        return f"train.stop_at_error={record.measurement.value!r}", "train.stop_split=test", *stages

    def record(self, trial) -> Record | None:
        """The number of a trial, if there is one: of the published card, or else measured."""
        card = self.published_card(trial)
        published = (
            next((m for m in card.metrics if m.protocol == trial.cell.protocol), None) if card else None
        )
        if published:
            return of_card(card, published)
        recipe = self.recipe(trial)
        if recipe is None:
            return None
        record = self.records.get((self.key(trial), trial.cell.protocol))
        return record if record and record.of(recipe) else None

    def key(self, trial) -> str:
        """The name of a trial's training, see `capszoo.results.records.key_of`; its recipe must be known."""
        recipe, card = self.recipe(trial), self.published_card(trial)
        if card:
            return key_of(recipe, card.files[WEIGHTS].sha256)
        start = recipe.train.start_from
        return key_of(recipe, self._hash_of_start(start) if start else "")

    def _hash_of_start(self, name):
        """SHA-256 of the weights that a training begins from; "" where there are none, as that training will say."""
        if name in self._names or name in recipes.FORMER_NAMES:
            card = self._presets(name).card
            return card.files[WEIGHTS].sha256 if card else ""
        try:
            return self._hash_of(find_start(name).path)
        except (ConfigError, OSError):
            return ""

    def state(self, trial, folder) -> str:
        """Whether a trial's number is "published", "measured", "running", "waiting" for another one, or "missing".

        Or "no data", where a network is made for pictures that must be looked at and are not there.
        """
        record = self.record(trial)
        if record:
            return "measured" if record.key else "published"
        recipe = self.recipe(trial)
        if recipe is None:
            return "no data" if self.lacks(trial) else "waiting"
        run = Path(folder) / self.key(trial) / RUN
        places = (run.parent, run, *(stage_folder(run, stage) for stage in recipe.stages))
        return "running" if any(map(_busy, places)) else "missing"

    def hours(self, trial, folder=None) -> float:
        """What a trial costs, estimated: of weights that are published or trained only what measuring takes.

        A training costs the hours of the cell that says most of those that share it: others may only be measured after.
        """
        if self.trained(trial, folder):
            return min(MEASURING, trial.cell.hours)
        return max(trial.cell.hours, self._longest.get(self.training(trial), 0.0))

    @functools.cached_property
    def _longest(self):
        """The most hours of the cells of each training, by its key; of those whose end depends on no number."""
        trials = [trial for table in self.tables() for trial in self.trials(table)]
        longest = collections.defaultdict(float)
        for trial in trials:
            if not trial.cell.stops_at and self.recipe(trial):
                key = self.key(trial)
                longest[key] = max(longest[key], trial.cell.hours)
        return longest

    def trained(self, trial, folder=None) -> bool:
        """Whether the weights are there: published, or in the common folder and measured by another protocol.

        A number in a ledger may be of a training whose weights were never published.
        """
        if self.published_card(trial) is not None:
            return True
        training = self.training(trial)
        if not folder or not training:
            return False
        place = Path(folder) / training
        # Not of `Path`, which raises an error for a folder that may not be looked into.
        return os.path.exists(place / RUN / BEST) and any(place.glob("*.json"))

    def training(self, trial) -> str | None:
        """The key of a trial's training; None while it is not known what ends it."""
        return self.key(trial) if self.recipe(trial) else None

    def command(self, trial) -> str:
        """The command line that makes a trial's number again without the queue.

        While the number is missing that ends the training, it is without that end.
        """
        recipe, measure = trial.cell.recipe, ["--protocol", trial.cell.protocol]
        if self.published_card(trial):
            return shlex.join(plugins.command("evaluate", recipe, *measure))
        overrides = (*trial.overrides, f"train.seed={trial.seed}", *(self._ends(trial) or ()))
        # Cells of one recipe cannot share the folder that is named after it.
        run = f"runs/{self.training(trial) or Path(recipe).stem}"
        train = plugins.command("train", recipe, *overrides, "--out", run)
        return f"{shlex.join(train)} && {shlex.join(plugins.command('evaluate', run, *measure))}"

    def add(self, record):
        """Takes in a number; of two of one training and protocol the one of the later day counts, or else the last."""
        place = record.key, record.measurement.protocol
        known = self.records.get(place)
        if known is None or known.measurement.date <= record.measurement.date:
            self.records[place] = record

    def published(self) -> dict[str, Record]:
        """The test errors in the cards of all presets with weights, by name."""
        cards = {name: self._presets(name).card for name in self._names}
        found = {}
        for name, card in cards.items():
            error = next((m for m in card.metrics if m.protocol == "test_error"), None) if card else None
            if error:
                found[name] = of_card(card, error)
        return found

    def speeds(self) -> dict[str, Speed]:
        """What the cards of presets say of speed, by name."""
        cards = {name: self._presets(name).card for name in self._names}
        return {name: card.speed for name, card in cards.items() if card and card.speed}


def of_card(card, measurement) -> Record:
    """A number of published weights, and their training, as the record of it."""
    speed = card.training["median images/s"]
    parts = [(card.training, card.recipe["train"])]
    parts += [(facts, card.recipe["stages"][name]["train"]) for name, facts in card.stages.items()]
    hours = sum(
        facts["steps"] * train["batch_size"] / facts.get("median images/s", speed) / 3600
        for facts, train in parts
    )
    return Record(
        key="",
        recipe=card.recipe,
        measurement=measurement,
        routing=card.routing,
        parameters=card.parameters,
        steps=sum(facts["steps"] for facts, _ in parts),
        hours=round(hours, 4),
        accelerator=card.training.get("accelerator", ""),
    )


def _seeded(recipe, seed):
    """`recipe` with another seed, in its stages too, unless they have one of their own."""
    stages = [
        dataclasses.replace(stage, train=dataclasses.replace(stage.train, seed=seed))
        if stage.train.seed == recipe.train.seed
        else stage
        for stage in recipe.stages
    ]
    return dataclasses.replace(
        recipe, train=dataclasses.replace(recipe.train, seed=seed), stages=tuple(stages)
    )


def _busy(folder):
    """Whether somebody works there; of a folder that cannot be locked whoever tries to work there hears."""
    try:
        if not folder.exists():
            return False
        with locked(folder, "busy"):
            return False
    except Busy:
        return True
    except OSError:
        return False
