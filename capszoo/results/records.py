"""What was measured for cells: one record per training and protocol, in files that grow together."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path

from capszoo import config
from capszoo.config import ConfigError
from capszoo.protocols.measurement import Measurement
from capszoo.training.files import write_text
from capszoo.training.folder import stage_folder
from capszoo.training.log import read_log
from capszoo.training.recipe import parse_recipe

LEDGER = "results.json"
_KEY = re.compile("-[0-9a-f]{12}$")


@dataclasses.dataclass(frozen=True)
class Record:
    """A number, and the training behind it.

    where:
      key: of the training, see `Results.key`; "" for a number in a card. recipe: every value it was trained with.
      measurement: the number.
      routing, parameters: of the network. steps, hours: of the training, all stages, on `accelerator` or else on CPUs.
      curve: the validation error after so many hours, by epochs; empty without a validation split.
    """

    key: str
    recipe: dict[str, dict]
    measurement: Measurement
    routing: str
    parameters: int
    steps: int
    hours: float
    curve: tuple[tuple[float, float], ...] = ()
    accelerator: str = ""

    def of(self, recipe) -> bool:
        """Whether this is a number of `recipe`; options that are newer than the record had their defaults then."""
        try:
            trained = parse_recipe(recipe.name, self.recipe)
        except ConfigError:
            return False
        parts = ("model", "data", "train", "stages")
        return all(getattr(trained, part) == getattr(recipe, part) for part in parts)


def key_of(recipe, weights="") -> str:
    """A name for a training of `recipe`: its own, and a hash of every value that is not the default.

    where:
      weights: SHA-256 of the published weights that it begins from, or that are measured instead; others with the same
        name make another number.

    Options that come later do not change it.
    """
    stages = {stage.name: [_chosen(stage.model), _chosen(stage.train)] for stage in recipe.stages}
    values = [_chosen(recipe.model), _chosen(recipe.data), _chosen(recipe.train), stages]
    values += [weights] if weights else []
    names = [stage.name for stage in recipe.stages]
    # The hash sorts stages by name. Reverse order adds nothing: records from before order counted keep their keys.
    values += [names] if names != sorted(names, reverse=True) else []
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return f"{recipe.name}-{digest[:12]}"


def _chosen(options):
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    mapping = config.to_mapping(options)
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in defaults.items()}
    return {key: value for key, value in mapping.items() if key not in plain or plain[key] != value}


def published() -> Path:
    """The folder with the zoo's own ledger: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "docs"
    return installed if installed.is_dir() else package.parent / "docs"


def read_records(folder) -> list[Record]:
    """The records in the ledger of a folder; none where there is no such file. Errors: `ConfigError` naming it."""
    path = Path(folder) / LEDGER
    if not path.exists():
        return []
    entries = _read(path)
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: a list of records is needed. Received: {type(entries).__name__}")
    return [config.parse(Record, entry, str(path)) for entry in entries]


def write_records(folder, records):
    """Replaces the ledger of a folder; of two records of one training and protocol the later one stays."""
    latest = {(record.key, record.measurement.protocol): record for record in records}
    entries = [dataclasses.asdict(latest[place]) for place in sorted(latest)]
    # A line for each, so that a difference shows the records that it is about.
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    write_text(Path(folder) / LEDGER, f"[\n{lines}\n]\n")


def measured_in(folder) -> list[Record]:
    """What has been measured in the common folder of a queue, see `capszoo.results.queue`.

    Errors: `ConfigError` naming the file that is not readable.
    """
    # Beside the trainings there may be other folders, such as one with the page.
    paths = [path for path in sorted(Path(folder).glob("*/*.json")) if _KEY.search(path.parent.name)]
    return [read_record(path) for path in paths]


def read_record(path) -> Record:
    """The record in a file of its own. Errors: `ConfigError` naming the file that is not readable."""
    return config.parse(Record, _read(path), str(path))


def _read(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not readable: {error}") from error


def trained_hours(recipe, run) -> tuple[int, float, tuple[tuple[float, float], ...]]:
    """Steps and hours of a run, stages included, and its curve of validation errors, from its own log."""
    steps, hours, curve = 0, 0.0, []
    for stage in recipe.stages:
        more, longer, _ = trained_hours(recipe.at(stage), stage_folder(run, stage))
        steps, hours = steps + more, hours + longer
    before = 0
    for line in read_log(run):
        images = (line["step"] - before) * recipe.train.batch_size
        hours += images / line["images_per_second"] / 3600
        before = line["step"]
        if "validation_error" in line:
            curve.append((round(hours, 4), line["validation_error"]))
    return steps + before, round(hours, 4), tuple(curve)
