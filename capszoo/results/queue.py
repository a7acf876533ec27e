"""Making the numbers that are missing: the cheapest first, one training at a time, from a folder that machines share.

The common folder holds for each training a folder named by its key (see `Results.key`) with
  .lock            taken while somebody works on it,
  run/             the run, which goes on where it was killed,
  PROTOCOL.json    the record of each number, seen whole or not at all.
"""

import dataclasses
import json
import time
from pathlib import Path

from capszoo import config
from capszoo.models.network import trainable_parameters
from capszoo.progress import QUIET, Progress
from capszoo.protocols import evaluate, get_protocol, provenance
from capszoo.results.records import Record, measured_in, read_record, trained_hours
from capszoo.results.trials import RUN, of_card
from capszoo.training.files import Busy, locked, write_text
from capszoo.training.folder import load_best
from capszoo.training.run import train
from capszoo.zoo.loading import load
from capszoo.zoo.starting import find_start


class OutOfTime(Exception):
    """The hours are over in the middle of a training, which goes on from its checkpoint next time."""


class Limited(Progress):
    """Progress that ends the work at its next step after a deadline, a value of `time.monotonic`."""

    def __init__(self, progress, deadline):
        self.progress, self.deadline = progress, deadline

    def begin(self, title, total, done=0):
        self.progress.begin(title, total, done)

    def advance(self, count=1, numbers=None):
        self.progress.advance(count, numbers)
        if time.monotonic() > self.deadline:
            raise OutOfTime

    def say(self, text):
        self.progress.say(text)


def work(results, tables, folder, hours=None, progress=QUIET) -> list[str]:
    """Trains and measures what is missing of `tables`, until nothing is left or the hours are over.

    where:
      results: a `capszoo.results.trials.Results`, which gets every new number.
      folder: common to all who share the queue.
      hours: after which it stops, in the middle of a training if need be; None has no limit.
      progress: see `capszoo.progress`.

    What fails is said and passed over: data that are not there, a loss that diverges. What another machine is at is
    passed over and no failure. Returns what failed, a line each.
    """
    provenance.revision()  # Of the code as it is now: what is committed meanwhile is not what runs.
    limited = Limited(progress, time.monotonic() + (float("inf") if hours is None else 3600 * hours))
    tried, broken = set(), set()
    failed = [
        reason for table in tables for trial in results.trials(table) if (reason := results.lacks(trial))
    ]
    for reason in failed:
        progress.say(reason)
    while time.monotonic() < limited.deadline:
        trial = _cheapest(results, tables, folder, tried)
        if trial is None:
            break
        tried.add(trial)
        progress.say(f"{trial}: about {results.hours(trial, folder):g} h")
        try:
            record = _number(results, trial, Path(folder), limited, broken)
        except OutOfTime:
            progress.say(f"{trial}: the hours are over; it goes on next time")
            break
        except Busy as error:  # since a moment ago: while the number is being made it is not "missing"
            progress.say(f"{trial}: {error}")
            tried.discard(trial)
        except Exception as error:  # of any library: the next number may do without it
            failed.append(f"{trial}: {error}")
            progress.say(failed[-1])
        else:
            progress.say(f"{trial}: {record.measurement.sentence()}")
    return failed


def _cheapest(results, tables, folder, tried):
    for record in measured_in(folder):  # by others meanwhile
        results.add(record)
    missing = [
        trial
        for table in tables
        for trial in results.trials(table)
        if trial not in tried and results.state(trial, folder) == "missing"
    ]

    def cost(trial):
        hours = results.hours(trial, folder)
        # What nobody has estimated comes last; of what costs as much, another cell before another seed of the same.
        return not hours, hours, trial.seed

    return min(missing, key=cost, default=None)


def _number(results, trial, folder, progress, broken):
    """The record of a trial, made by training and measuring, or of published weights by measuring alone.

    where:
      broken: keys of trainings that have failed, which for another number are not tried again; gets this one's.
    """
    recipe, card = results.recipe(trial), results.published_card(trial)
    key = results.key(trial)
    _require_number(trial.cell.protocol, recipe)

    def measured(model):
        measurement = evaluate(
            model, recipe, trial.cell.protocol, command=results.command(trial), progress=progress
        )
        return dataclasses.replace(measurement, paper=trial.cell.paper)

    with locked(folder / key, f"another process is at {key}"):
        path = folder / key / f"{trial.cell.protocol}.json"
        if path.exists():  # by another machine, since this one looked
            results.add(read_record(path))
            if results.record(trial):
                return results.record(trial)
        if card:
            record = of_card(card, measured(load(trial.cell.recipe)))
            record = dataclasses.replace(record, key=key, recipe=recipe.to_mapping())
        else:
            run = folder / key / RUN
            _trained(recipe, run, progress, key, broken)
            model, best = load_best(recipe, run)
            steps, hours, curve = trained_hours(recipe, run)
            record = Record(
                key=key,
                recipe=recipe.to_mapping(),
                measurement=measured(model),
                routing=recipe.model.routing,
                parameters=trainable_parameters(model),
                steps=steps,
                hours=hours,
                curve=curve,
                accelerator=best.get("accelerator", ""),
            )
        text = json.dumps(dataclasses.asdict(record), indent=1, ensure_ascii=False) + "\n"
        # As whoever reads it will: a number that is NaN would stop every later command.
        config.parse(Record, json.loads(text), f"the number of {trial}")
        write_text(path, text)
    results.add(record)
    return record


def _trained(recipe, run, progress, key, broken):
    """Trains. Errors: `ValueError` for a training that has failed before; those of training."""
    if key in broken:
        raise ValueError(f"the training {key} has failed.")
    try:
        train(recipe, run, progress, find=find_start)
    except (OutOfTime, Busy):
        raise
    except Exception:
        broken.add(key)
        raise


def _require_number(name, recipe):
    """Errors, before anything is trained: `ConfigError` for a protocol of other networks or images; `DataNotFound`."""
    protocol = get_protocol(name)
    protocol.require_recipe(recipe)
    protocol.open(recipe)
