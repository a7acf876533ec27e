"""Search for the values of a recipe: Keras Tuner proposes them, and every trial is a run of `capszoo.training.run`.

The folder of a search holds
  search.yaml        the recipe and the search that were started,
  images.json        the fingerprints of the images that trials train on and are validated on,
  leaderboard.json   the trials so far, best first (also as leaderboard.md), see `capszoo.search.leaderboard`,
  best.yaml          the recipe with the best trial's values, for `capszoo train`,
  search.png         the validation error against each value,
  oracle/            Keras Tuner's own state,
  trials/            the folder of each trial's run.

A search that is killed and started again with the same command repeats nothing: finished trials are known to the
oracle, and the one that was being trained goes on from its checkpoint.

Several processes share a search in Keras Tuner's way. They run the same command on the same folder, with
KERASTUNER_ORACLE_IP and KERASTUNER_ORACLE_PORT set to where the chief listens, and KERASTUNER_TUNER_ID: "chief" for
the one that proposes values and trains nothing, a name of its own for each worker.
"""

import contextlib
import dataclasses
import functools
import json
import os
from pathlib import Path

import keras
import numpy as np
import yaml

from capszoo.config import ConfigError, read_yaml
from capszoo.extras import extra
from capszoo.progress import QUIET
from capszoo.search.leaderboard import to_table
from capszoo.search.recipe import parse_recipe
from capszoo.search.record import write
from capszoo.search.space import with_values
from capszoo.training.claim import OtherRun
from capszoo.training.files import Busy, locked, write_text
from capszoo.training.log import read_log
from capszoo.training.run import train
from capszoo.training.start import start_of_file
from capszoo.training.weight_files import UnfitWeights, WeightsError

with extra("tune"):
    import keras_tuner

OBJECTIVE = "validation_error"
# The error of a network that has all images wrong.
WORST = 1.0
FAILURE, IMAGES = "failure.txt", "images.json"
# More than any search has: Keras Tuner has no other way to ask a chief for all trials.
ALL = 10**6


class TrialsFailed(ValueError):
    """Not one trial of a search could be trained."""


def tune(recipe, directory, progress=QUIET, find=start_of_file) -> list[dict]:
    """Searches the space that `recipe` declares, or goes on with such a search; returns the leaderboard.

    where:
      directory: of the search.
      progress: counts the steps of the trial under way, and says the leaderboard after every trial.
      find: what `train.start_from` means, see `capszoo.training.run.train`.

    A trial whose values are not legal together or whose training diverges is a failed one, with its reason.
    Errors: `ConfigError` for a recipe that declares no search, for more images than there are, and where the folder
    holds another search, or one on other images; `Busy` where another process searches in the folder;
    `TrialsFailed` with the first reason if all trials failed; whatever else stops a trial stops the search.
    """
    _require_search(recipe)
    directory = Path(directory)
    if not _is_chief():
        _require_images(recipe)
    with _alone_in(directory):
        _claim(recipe, directory)
        if not _is_chief():  # Which looks at no image.
            _claim_images(recipe, directory)
        tuner = _Tuner(recipe, directory, progress, find)
        try:
            tuner.search()
        except keras_tuner.errors.FatalError as error:
            raise error.__cause__ from None
        if not tuner.is_worker:
            tuner.conclude()
    if tuner.rows and not any(row["status"] == "completed" for row in tuner.rows):
        raise TrialsFailed(f"no trial could be trained. {tuner.rows[0]['reason']}")
    return tuner.rows


def _alone_in(directory):
    """Inside, no other search is at work in the folder, but for the workers of a chief."""
    # As Keras Tuner tells a worker.
    if "KERASTUNER_ORACLE_IP" in os.environ and not _is_chief():
        return contextlib.nullcontext()
    return locked(
        directory, f"another process is searching in {directory}. Wait for it, or give another --out."
    )


def _is_chief():
    return "KERASTUNER_ORACLE_IP" in os.environ and "chief" in os.environ.get("KERASTUNER_TUNER_ID", "")


def _require_search(recipe):
    if recipe.search is None:
        raise ConfigError(f"{recipe.name}: the recipe has no section 'search', so there is nothing to tune.")
    if not recipe.data.validates:
        raise ConfigError(f"{recipe.name}: the search needs a validation split. Received data without one.")


def _require_images(recipe):
    """Errors: `ConfigError` where no trial could be trained, for more images than there are."""
    there = len(recipe.data.open("train"))
    key, images = "search.images", recipe.search.images
    if images is None:
        key, images = "train.images", recipe.train.images
    if images and images > there:
        raise ConfigError(f"{key} must be at most {there}, the training images. Received: {images}")


def _claim(recipe, directory):
    """Writes recipe and search into the folder, or finds the same there; more trials may be asked for."""
    path = directory / "search.yaml"
    if path.exists():
        before = parse_recipe(recipe.name, read_yaml(path))
        for part in ("model", "data", "train", "search"):
            ours, theirs = (_comparable(getattr(each, part)) for each in (recipe, before))
            changed = [f"{part}.{key}" for key in ours if ours[key] != theirs.get(key)]
            if changed or ours.keys() != theirs.keys():
                raise ConfigError(
                    f"{directory} holds another search ({', '.join(changed) or part} changed). "
                    "Give another folder with --out, or delete that one."
                )
    directory.mkdir(parents=True, exist_ok=True)
    mapping = {**recipe.to_mapping(), "search": dataclasses.asdict(recipe.search)}
    write_text(path, yaml.safe_dump(mapping, sort_keys=False))


def _claim_images(recipe, directory):
    """Writes into the folder what the images are, or finds the same there; images that nobody can read are an error."""
    path = directory / IMAGES
    images = {split: recipe.data.open(split).fingerprint() for split in ("train", "validation")}
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != images:
        raise ConfigError(
            f"{directory} holds a search on other images than those that are there now. "
            "Give another folder with --out, or delete that one."
        )
    write_text(path, json.dumps(images) + "\n")


def _comparable(part):
    fields = dataclasses.asdict(part) | {"name": getattr(part, "section_name", None)}
    fields.pop("trials", None)
    return fields


class _Tuner(keras_tuner.engine.base_tuner.BaseTuner):
    """Keras Tuner's loop over trials, alone, as a chief or as a worker, around `capszoo.training.run.train`."""

    def __init__(self, recipe, directory, progress, find):
        self.recipe, self.folder, self.progress, self.rows = recipe, directory, progress, []
        self.find = find
        super().__init__(_oracle(recipe.search), directory=str(directory), project_name="oracle")
        # A worker has a client of the chief's oracle in its place.
        self.is_worker = not isinstance(self.oracle, keras_tuner.Oracle)
        if not self.is_worker and (directory / "oracle" / "oracle.json").exists():
            self.oracle.reload()

    def save(self):
        """Keeps the oracle's state; a tuner has none of its own."""
        if not self.is_worker:
            self.oracle.save()

    def run_trial(self, trial):
        """Trains a trial, for as long as the oracle wants, and returns its lowest validation error."""
        keras.utils.clear_session()
        folder = self._run_folder(trial)
        try:
            record = train(
                self._trial_recipe(trial),
                folder,
                self.progress,
                find=self.find,
                pause_after=self._epochs(trial),
            )
        except Exception as error:
            if not _is_of_the_values(error):
                # Keras Tuner would take the trial for a failed one and go on.
                raise keras_tuner.errors.FatalError(str(error)) from error
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / FAILURE, str(error))
            # Of reconstructions the errors before may be above that of all images wrong.
            return {OBJECTIVE: max([WORST, *(each.score for each in self._completed())])}
        return {OBJECTIVE: record["best_validation_error"]}

    def on_trial_end(self, trial):
        """Tells the oracle, and brings the leaderboard up to date."""
        super().on_trial_end(trial)
        self.conclude()
        self.progress.say(to_table(self.rows))

    def conclude(self):
        """Writes what the trials so far have shown."""
        completed = {}
        for trial in self._completed():
            completed.setdefault(json.dumps(self._values(trial)), []).append(trial)
        # Of trials with the same values, which are stages of one run, the one that was trained for longest.
        rows = [self._row(max(trials, key=self._epochs)) for trials in completed.values()]
        self.rows = sorted(rows, key=lambda row: (row[OBJECTIVE] is None, row[OBJECTIVE], row["trial"]))
        write(self.rows, self.recipe, self.folder)

    def _row(self, trial):
        folder, epochs = self._run_folder(trial), self._epochs(trial)
        row = {"trial": int(folder.name), "values": self._values(trial), "status": "completed"}
        if (folder / FAILURE).exists():
            reason = (folder / FAILURE).read_text(encoding="utf-8")
            return row | {"status": "failed", "reason": reason, OBJECTIVE: None}
        log = read_log(folder)
        last = [record for record in log if record.get("epoch", epochs + 1) <= epochs][-1]
        batch_size = self._trial_recipe(trial).train.batch_size
        seconds, step = 0.0, 0
        for record in log[: log.index(last) + 1]:
            seconds += (record["step"] - step) * batch_size / record["images_per_second"]
            step = record["step"]
        error = last["best_validation_error"]
        return row | {
            OBJECTIVE: error,
            "epochs": last["epoch"],
            "steps": step,
            "seconds": round(seconds, 1),
        }

    def _completed(self):
        return [trial for trial in self.oracle.get_best_trials(ALL) if trial.status == "COMPLETED"]

    def _run_folder(self, trial):
        """Where a trial is trained: with the first trial that had the same values.

        So Hyperband's better trials go on from where they were, and a proposal that comes again costs nothing.
        """
        values = self._values(trial)
        same = [int(each.trial_id) for each in self._completed() if self._values(each) == values]
        return self.folder / "trials" / f"{min([*same, int(trial.trial_id)]):03d}"

    def _epochs(self, trial):
        return trial.hyperparameters.values.get("tuner/epochs", self.recipe.search.epochs)

    def _values(self, trial):
        """The values of a trial by the recipe's keys, as plain data."""
        values = trial.hyperparameters.values
        return {key: _from_tuner(space, values[key]) for key, space in self.recipe.search.space.items()}

    def _trial_recipe(self, trial):
        search = self.recipe.search
        recipe = with_values(self.recipe, self._values(trial))
        cost = {"epochs": search.epochs, "images": search.images or self.recipe.train.images}
        # No trial may look at the test images.
        whole = {"stop_at_error": None, "stop_split": "validation"}
        train_config = dataclasses.replace(recipe.train, **cost, **whole)
        return dataclasses.replace(
            recipe, name=f"{recipe.name}, trial {trial.trial_id}", train=train_config, search=None
        )


def _is_of_the_values(error):
    """Whether a trial fails for its values, and not for its folder, its files or its images."""
    if isinstance(error, WeightsError):
        return isinstance(error, UnfitWeights)
    return isinstance(error, (ValueError, ArithmeticError)) and not isinstance(error, (Busy, OtherRun))


def _to_tuner(space: dict) -> keras_tuner.HyperParameters:
    """Keras Tuner's form of a recipe's space. A choice is one of texts, since Keras Tuner has none of lists."""
    parameters = keras_tuner.HyperParameters()
    for key, each in space.items():
        if each.choice is not None:
            parameters.Choice(key, [json.dumps(value) for value in each.choice])
            continue
        kind, ends = (parameters.Int, each.int) if each.int else (parameters.Float, each.float)
        step = each.int.step if each.int else None
        kind(key, ends.min, ends.max, step=step, sampling="log" if ends.log else "linear")
    return parameters


def _from_tuner(space, value):
    """The recipe's form of a value of Keras Tuner."""
    if space.choice is not None:
        return json.loads(value)
    ends = space.int or space.float
    # Six digits are enough, and can be read; Keras Tuner's logarithmic integers may pass their end by one.
    value = int(value) if space.int else float(f"{value:.6g}")
    return min(max(value, ends.min), ends.max)


def _oracle(search):
    """The oracle that a search asks for."""
    options = {
        "objective": keras_tuner.Objective(OBJECTIVE, "min"),
        "hyperparameters": _to_tuner(search.space),
        "allow_new_entries": False,
        "tune_new_entries": False,
        # Keras Tuner counts on from its seed, so that of 2 would propose what that of 1 does; zero is none to it.
        "seed": int(np.random.SeedSequence(search.seed).generate_state(1)[0] | 1),
    }
    if search.oracle == "hyperband":
        kind = keras_tuner.oracles.HyperbandOracle
        options |= {"max_epochs": search.epochs, "factor": search.factor}
    elif search.oracle == "bayesian":
        kind = keras_tuner.oracles.BayesianOptimizationOracle
        # Keras Tuner's own default could be more random trials than there are trials.
        points = min(3 * len(search.space), max(3, search.trials // 3))
        options |= {"max_trials": search.trials, "num_initial_points": points}
    else:
        kind = keras_tuner.oracles.RandomSearchOracle
        options["max_trials"] = search.trials
    oracle = _durable(kind)(**options)
    oracle.verbose = 0
    # Of a small space most proposals have been made before; Keras Tuner ends the search after twenty of these in a row.
    oracle._max_collisions = 10_000
    if search.oracle == "hyperband":
        trials = sum(oracle._get_size(bracket, 0) for bracket in range(oracle._get_num_brackets()))
        if search.combinations < trials:
            raise ConfigError(
                f"search.space: Hyperband begins {trials} different trials in {search.epochs} epochs. "
                f"Received: a space of {search.combinations} combinations"
            )
    return oracle


@functools.cache
def _durable(kind):
    """A class of oracles that can be killed at any moment and reloaded."""

    class Durable(kind):
        def save(self):
            write_text(Path(self._get_oracle_fname()), json.dumps(self.get_state()))

        def _save_trial(self, trial):
            path = Path(self._get_trial_dir(trial.trial_id)) / "trial.json"
            write_text(path, json.dumps(trial.get_state()))

        def reload(self):
            super().reload()
            # Killed before the oracle counted it: it will be proposed again.
            self.trials = {name: self.trials[name] for name in self.start_order}
            # Killed before the oracle took it off its list of trials under way.
            self._retry_queue = [name for name in self._retry_queue if self.trials[name].status == "RUNNING"]

    return Durable
