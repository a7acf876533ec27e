"""The log of a run: a line of JSON for each checkpoint and each epoch."""

import json
import logging
import os
from pathlib import Path

from capszoo.config import ConfigError
from capszoo.training.files import naming, write_text

LOG = "log.jsonl"
LOGGER = logging.getLogger(__name__)


def read_log(directory) -> list[dict]:
    """The records of a run, in order.

    Errors: `FileNotFoundError` where there is no run; `ConfigError`, naming the line, for a log that is damaged, and
    for one without a record.
    """
    path = Path(directory) / LOG
    records = [record_of(line) for line in log_lines(path)]
    if not records or None in records:
        what = f"line {records.index(None) + 1} is no record" if records else "it has no record"
        raise ConfigError(
            f"{path}: {what}, as after a power cut. To train the run again to its end leaves out what cannot be read."
        )
    return records


def log_lines(path) -> list[str]:
    """The lines of a log, each with its end; bytes that are no text are replaced."""
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)


def record_of(line) -> dict | None:
    """What a line of a log says; None of one that is not whole, as where the power was cut while it was written."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = line.endswith("\n") and isinstance(record, dict) and isinstance(record.get("step"), int)
    return record if whole else None


def append_record(directory, record):
    """Adds a record to the log of a run; it is on the disk when this returns."""
    path = Path(directory) / LOG
    with naming(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        # On the disk before the checkpoint is: after a power cut the log lacks nothing up to there.
        os.fsync(file.fileno())


def truncate_log(directory, step):
    """Drops what the log says of steps after `step`, which are done again, and what nobody can read."""
    path = Path(directory) / LOG
    if path.exists():
        records = {line: record_of(line) for line in log_lines(path)}
        # The end of the last line is what a killed process did not come to write.
        lost = [line for line, record in records.items() if record is None and line.endswith("\n")]
        if lost or any("\0" in line for line in records):
            LOGGER.warning("%s was damaged; what could not be read of it is left out", path)
        kept = [line for line, record in records.items() if record and record["step"] <= step]
        write_text(path, "".join(kept))
