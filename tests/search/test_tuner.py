"""A search draws from what the recipe declares, repeats nothing after a kill, and ends with a recipe that trains."""

import collections
import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from capszoo import cli
from capszoo.config import ConfigError, to_mapping
from capszoo.data import ArraySplit
from capszoo.data.pipeline import Batches
from capszoo.models import ConvNet
from capszoo.progress import QUIET
from capszoo.search import record
from capszoo.search import tuner as tuning
from capszoo.search.best_recipe import best_recipe
from capszoo.search.drawing import draw
from capszoo.search.space import IntegerRange, NumberRange, Space, lay_over
from capszoo.search.tuner import TrialsFailed, tune
from capszoo.training.claim import OtherRun
from capszoo.training.files import Busy, locked
from capszoo.training.health import TrainingDiverged
from capszoo.training.log import read_log
from capszoo.training.run import train
from capszoo.training.weight_files import UnfitWeights, WeightsError, read_arrays
from capszoo.zoo import presets
from capszoo.zoo.card import read_card
from capszoo.zoo.recipes import parse_recipe, read_recipe
from capszoo.zoo.starting import find_start

SMALL = """\
model: {name: dynamic, channels: 4, primary_types: 2, num_iterations: 2, decoder: false}
data: {name: mnist, validation: 50}
train: {epochs: 3, batch_size: 50, decay_steps: 7}
card: {title: A small net}
search:
  trials: 6
  images: 100
  space:
    model.channels: {int: {min: 4, max: 10, step: 3}}
    model.primary_types: {int: {min: 2, max: 9, log: true}}
    model.routing: {choice: [dynamic, leaky]}
    train.learning_rate: {float: {min: 1e-3, max: 1e-2, log: true}}
    train.gradient_clip: {choice: [null, 1e1]}
    train.decay_rate: {float: {min: 0.9, max: 1.0}}
"""
RATE = "search.space={train.learning_rate: {float: {min: 0.1, max: 0.9}}}"
HYPERBAND = (RATE, "search.oracle=hyperband", "search.trials=null", "search.epochs=4", "search.factor=2")
# Trials that Hyperband then begins with.
STAGE = 4


class Killed(BaseException):
    """What ends a program in the middle of anything."""


@pytest.fixture(autouse=True, scope="module")
def recipe_file(data):
    """A recipe for the tiny data set, which is the only one on this machine."""
    (data / "small.yaml").write_text(SMALL, encoding="utf-8")


@pytest.fixture
def small(data):
    """`small(*overrides)`: the small recipe."""
    return lambda *overrides: read_recipe(data / "small.yaml", overrides)


Call = collections.namedtuple("Call", "folder recipe epochs")


class Trainer:
    """Stands in for `train`: an epoch is a line of the log, and the error is that of a known function."""

    def __init__(self, error=lambda recipe, epoch: abs(recipe.train.learning_rate - 0.3) + 0.1 / epoch):
        self.error, self.calls, self.found = error, [], []

    def __call__(self, recipe, directory, progress=QUIET, find=None, pause_after=None):
        directory.mkdir(parents=True, exist_ok=True)
        self.found.append(find)
        path = directory / "log.jsonl"
        log = read_log(directory) if path.exists() else []
        first = len(log) + 1
        self.calls.append(Call(directory.name, recipe, range(first, pause_after + 1)))
        for epoch in range(first, pause_after + 1):
            error = min([self.error(recipe, epoch), *(r["best_validation_error"] for r in log)])
            speed = {"images_per_second": 10.0, "step": 2 * epoch, "epoch": epoch}
            log.append({**speed, "best_validation_error": error})
            path.write_text("".join(json.dumps(record) + "\n" for record in log), encoding="utf-8")
        return log[-1]


@pytest.fixture
def trainer(monkeypatch):
    """The stand-in, in place of `train`."""
    trainer = Trainer()
    monkeypatch.setattr(tuning, "train", trainer)
    return trainer


class Blank:
    """A drawing that costs no time."""

    def savefig(self, path, **_):
        path.write_bytes(b"")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """No time is spent on drawings, unless a test puts `draw` back, and on collecting what is no longer used."""
    monkeypatch.setattr(record, "draw", lambda *_: Blank())
    monkeypatch.setattr(tuning.keras.utils, "clear_session", lambda: None)


# What a recipe may declare


def test_every_kind_of_space_is_read_into_the_types_of_its_field(small):
    search = small().search
    assert (search.oracle, search.trials, search.epochs, search.images) == ("random", 6, 1, 100)
    assert dataclasses.astuple(search.space["model.channels"].int) == (4, 10, 3, False)
    assert dataclasses.astuple(search.space["train.learning_rate"].float) == (0.001, 0.01, True)
    assert search.space["train.gradient_clip"].choice == (None, 10.0)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("{}", r"search\.space: at least one key is needed"),
        ("[model.channels]", r"search\.space: expected a mapping"),
        ("{model.chanels: {choice: [4]}}", r"model\.chanels: unknown key; did you mean 'model\.channels'"),
        ("{model.name: {choice: [em]}}", r"search\.space\.model\.name: unknown key"),
        ("{data.shift: {choice: [1]}}", r"search\.space\.data\.shift: unknown key"),
        ("{train.epochs: {choice: [1]}}", r"search\.space\.train\.epochs: is decided by search\.epochs"),
        ("{train.stop_split: {choice: [test]}}", r"search\.space\.train\.stop_split: is decided by"),
        ("{model.channels: 4}", r"search\.space\.model\.channels: a mapping is needed"),
        ("{model.channels: {}}", r"search\.space\.model\.channels: one of choice, int, float is needed"),
        ("{model.channels: {choice: [1], int: {min: 1, max: 2}}}", r"one of choice, int, float is needed"),
        ("{model.channels: {integer: {}}}", r"model\.channels\.integer: unknown key; did you mean 'int'"),
        ("{model.channels: {choice: []}}", r"search\.space\.model\.channels: choice: different values are needed"),
        ("{model.channels: {choice: [4, 5, 4]}}", r"model\.channels: choice: different values"),
        ("{train.average: {choice: [0.9, '0.9']}}", r"search\.space\.train\.average: choice: different values"),
        ("{model.channels: {choice: [4, many]}}", r"search\.space\.model\.channels: expected int\. Received: 'many'"),
        ("{model.channels: {int: {min: 4}}}", r"search\.space\.model\.channels\.int: .*'max'"),
        ("{model.channels: {int: {min: 4, max: 4}}}", r"channels\.int: min must be below max\. Received: 4 and 4"),
        ("{model.channels: {int: {min: 4, max: 8, step: 0}}}", r"channels\.int: step must be at least 1"),
        ("{model.channels: {int: {min: 4, max: 8, step: 1, log: true}}}", r"int: step must be at least 2"),
        ("{model.channels: {int: {min: 4, max: 8.5}}}", r"model\.channels\.int\.max: expected int"),
        ("{model.channels: {float: {min: 4.5, max: 8}}}", r"search\.space\.model\.channels: expected int"),
        ("{model.routing: {choice: [dinamic]}}", r"search\.space\.model\.routing: .*did you mean 'dynamic'"),
        ("{train.batch_size: {int: {min: 0, max: 8}}}", r"search\.space\.train\.batch_size: must be at least 1"),
        ("{train.learning_rate: {float: {min: 0, max: 1, log: true}}}", r"float: min must be above 0"),
        ("{train.learning_rate: {float: {mni: 0, max: 1}}}", r"float\.mni: unknown key; did you mean 'min'"),
    ],
)  # fmt: skip
def test_a_space_that_cannot_be_meant_is_refused_with_its_key(small, space, message):
    with pytest.raises(ConfigError, match=message):
        small(f"search.space={space}")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("search.oracle=genetic", r"search\.oracle: 'genetic' is not allowed.*Valid: bayesian, hyperband, random"),
        ("search.oracle=hyperband", r"search\.trials: Hyperband counts its own trials"),
        ("search.trials=null", r"search\.trials: the number of trials is needed"),
        ("search.trials=0", r"search\.trials: must be at least 1"),
        ("search.epochs=0", r"search\.epochs: must be at least 1"),
        ("search.images=0", r"search\.images: must be at least 1"),
        ("search.factor=1", r"search\.factor: must be at least 2"),
        ("search.seed=-1", r"search\.seed: must be at least 0"),
        ("search.trails=3", r"search\.trails: unknown key; did you mean 'trials'"),
    ],
)  # fmt: skip
def test_a_budget_that_cannot_be_meant_is_refused_with_its_key(small, override, message):
    with pytest.raises(ConfigError, match=message):
        small(override)


def test_a_recipe_without_a_search_cannot_be_tuned(small, tmp_path):
    with pytest.raises(ConfigError, match="small: the recipe has no section 'search'"):
        tune(dataclasses.replace(small(), search=None), tmp_path)


@pytest.mark.parametrize("key", ["search.images", "train.images"])
def test_more_images_than_there_are_are_refused_before_there_is_a_folder(small, tmp_path, key):
    overrides = ["search.images=null"] if key == "train.images" else []
    with pytest.raises(
        ConfigError, match=rf"{key} must be at most \d+, the training images\. Received: 20000"
    ):
        tune(small(*overrides, f"{key}=20000"), tmp_path / "search")
    assert not (tmp_path / "search").exists()


def test_images_of_a_trial_are_those_of_the_search_where_it_says_some(small):
    tuning._require_images(small("train.images=20000", "search.images=20"))


@pytest.mark.parametrize("name", ["kernel_mnist", "lstm_mnist"])
def test_learned_routing_says_what_its_paper_could_not_try(name):
    keys = read_recipe(name).search.space.keys()
    assert {key for key in keys if key.startswith("model.")}
    assert "train.learning_rate" in keys


# What is proposed


@pytest.mark.parametrize("oracle", ["random", pytest.param("bayesian", marks=pytest.mark.slow)])
def test_proposals_lie_in_their_spaces_and_differ(small, tmp_path, trainer, oracle):
    rows = tune(small(f"search.oracle={oracle}", "search.trials=5"), tmp_path)
    assert len(rows) == 5
    values = {key: [row["values"][key] for row in rows] for key in rows[0]["values"]}
    assert set(values["model.channels"]) <= {4, 7, 10}
    assert all(2 <= each <= 9 for each in values["model.primary_types"])
    assert set(values["model.routing"]) == {"dynamic", "leaky"}
    assert set(values["train.gradient_clip"]) == {None, 10.0}
    assert all(0.001 <= each <= 0.01 for each in values["train.learning_rate"])
    assert all(0.9 <= each <= 1.0 for each in values["train.decay_rate"])
    for call in trainer.calls:
        (row,) = (row for row in rows if row["trial"] == int(call.folder))
        assert {key: to_mapping(getattr(call.recipe, key.split(".")[0]))[key.split(".")[1]] for key in values} == (
            row["values"]
        )  # fmt: skip


def test_a_value_that_is_a_list_is_chosen_whole(tmp_path, trainer):
    mapping = {
        "model": {"name": "kernel"},
        "data": {"name": "mnist", "validation": 50},
        "search": {"trials": 3, "space": {"model.components": {"choice": [[4, 4, 10], [1, 1, 1]]}}},
    }
    rows = tune(parse_recipe("lists", mapping), tmp_path)
    assert sorted(row["values"]["model.components"] for row in rows) == [[1, 1, 1], [4, 4, 10]]
    assert {call.recipe.model.components for call in trainer.calls} == {(4, 4, 10), (1, 1, 1)}
    text = best_recipe(
        [row for row in rows if row["values"]["model.components"][0] == 1], parse_recipe("lists", mapping)
    )
    # Only what is not a default.
    expected = {"model": {"name": "kernel", "components": [1, 1, 1]}, "data": mapping["data"]}
    assert yaml.safe_load(text) == expected | {"train": {}, "card": {}}


@pytest.mark.parametrize(
    ("space", "middle"),
    [
        ("train.learning_rate: {float: {min: 1e-6, max: 1, log: true}}", 1e-3),
        ("model.channels: {int: {min: 1, max: 10000, log: true}}", 100),
    ],
)
def test_logarithmic_ranges_have_as_many_values_below_their_geometric_mean_as_above(
    small, tmp_path, trainer, space, middle
):
    rows = tune(small(f"search.space={{{space}}}", "search.trials=20"), tmp_path)
    below = [value < middle for row in rows for value in row["values"].values()]
    assert 5 <= sum(below) <= 15


@dataclasses.dataclass(frozen=True)
class Networks:
    """A section with hidden layers."""

    hidden: tuple[tuple[int, ...], ...] = ((),)


def test_lists_of_layers_become_tuples_and_plain_lists_again():
    section = lay_over(Networks(), {"hidden": [[], [32, 32]]}, "model")
    assert section == Networks(((), (32, 32)))
    assert to_mapping(section) == {"hidden": [[], [32, 32]]}


def test_a_logarithmic_range_of_integers_does_not_pass_its_end(small):
    space = small().search.space["model.primary_types"]
    assert tuning._from_tuner(space, 10) == 9


def test_another_seed_proposes_other_values(small, tmp_path, trainer):
    found = [
        tune(small(RATE, f"search.seed={seed}"), tmp_path / name)[0]["values"]
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert found[0] == found[1] != found[2]


@pytest.mark.slow
def test_a_gaussian_process_comes_closer_to_the_optimum_than_its_random_start(small, tmp_path, trainer):
    rows = tune(small(RATE, "search.oracle=bayesian", "search.trials=7"), tmp_path)
    distances = {row["trial"]: abs(row["values"]["train.learning_rate"] - 0.3) for row in rows}
    assert min(distances[trial] for trial in range(3, 7)) < 0.01 < min(distances[t] for t in range(3))


# What a trial is


def test_a_trial_has_the_cost_of_the_search_and_sees_no_test_image(small, tmp_path, trainer):
    overrides = ("train.stop_at_error=0.5", "train.stop_split=test", "search.epochs=2", "search.trials=1")
    tune(small(*overrides), tmp_path)
    (call,) = trainer.calls
    config = call.recipe.train
    assert (config.epochs, config.images, call.epochs) == (2, 100, range(1, 3))
    assert (config.stop_at_error, config.stop_split) == (None, "validation")
    assert (config.batch_size, config.decay_steps) == (50, 7)


def test_hyperband_trains_the_better_trials_on_from_where_they_were(small, tmp_path, trainer):
    rows = tune(small(*HYPERBAND), tmp_path)
    epochs = collections.defaultdict(list)
    for call in trainer.calls:
        epochs[call.folder] += call.epochs
    # No epoch of any run is trained twice or left out, and the schedule is always that of the longest.
    assert all(each == list(range(1, len(each) + 1)) for each in epochs.values())
    assert {len(each) for each in epochs.values()} == {1, 2, 4}
    assert {call.recipe.train.epochs for call in trainer.calls} == {4}
    assert {f"{row['trial']:03d}": row["epochs"] for row in rows} == {k: len(v) for k, v in epochs.items()}
    assert rows[0]["epochs"] == 4
    # Of the first stage the best half was kept.
    first = sorted(rows, key=lambda row: row["trial"])[:STAGE]
    kept = [abs(row["values"]["train.learning_rate"] - 0.3) for row in first if row["epochs"] > 1]
    left = [abs(row["values"]["train.learning_rate"] - 0.3) for row in first if row["epochs"] == 1]
    assert len(kept) == len(left) == STAGE // 2
    assert max(kept) < min(left)


HYPERBAND_OF_NINE = ("search.oracle=hyperband", "search.trials=null", "search.epochs=9", "search.factor=3")
# Rungs of 9, 5 and 3 trials begin.
SEVENTEEN = "search.space={train.decay_steps: {int: {min: 1, max: 17}}}"
SIXTEEN = (
    "search.space={train.decay_steps: {int: {min: 1, max: 8}}, model.routing: {choice: [dynamic, leaky]}}"
)


def test_hyperband_finds_all_of_a_small_space(small, tmp_path, trainer):
    rows = tune(small(*HYPERBAND_OF_NINE, SEVENTEEN), tmp_path)
    assert {row["values"]["train.decay_steps"] for row in rows} == set(range(1, 18))
    assert rows[0]["epochs"] == 9


def test_hyperband_without_a_second_rung_is_refused(small):
    with pytest.raises(ConfigError, match=r"search\.epochs: Hyperband .*factor, 3\. Received: 2"):
        small(*HYPERBAND_OF_NINE, "search.epochs=2")


def test_hyperband_needs_as_many_combinations_as_trials(small, tmp_path, trainer):
    with pytest.raises(ConfigError, match=r"begins 17 different trials .*a space of 16 combinations"):
        tune(small(*HYPERBAND_OF_NINE, SIXTEEN), tmp_path)
    assert not trainer.calls


@pytest.mark.parametrize(
    ("space", "count"),
    [
        ({"min": 2, "max": 9}, 8),
        ({"min": 2, "max": 9, "step": 3}, 3),
        ({"min": 1, "max": 8, "step": 2, "log": True}, 4),
        ({"min": 3, "max": 11, "step": 2, "log": True}, 2),
        ({"min": 1, "max": 8, "log": True}, 8),
    ],
)
def test_values_of_a_range_are_counted(space, count):
    assert Space(int=IntegerRange(**space)).count == count
    assert Space(float=NumberRange(1.0, 2.0)).count == float("inf")


def test_a_failed_trial_is_listed_last_with_its_reason(small, tmp_path, monkeypatch):
    def fail(recipe, epoch):
        if recipe.train.learning_rate > 0.5:
            raise UnfitWeights("too fast")
        return 0.5

    monkeypatch.setattr(tuning, "train", Trainer(fail))
    rows = tune(small(RATE), tmp_path)
    failed = [row for row in rows if row["values"]["train.learning_rate"] > 0.5]
    assert 0 < len(failed) < len(rows) == 6
    assert rows[-len(failed) :] == failed
    assert {(row["status"], row["reason"], row["validation_error"]) for row in failed} == {
        ("failed", "too fast", None)
    }
    assert "failed: too fast" in (tmp_path / "leaderboard.md").read_text(encoding="utf-8")


def test_a_card_lists_all_that_a_search_has_tried(small, tmp_path, monkeypatch):
    def fail(recipe, epoch):
        if recipe.train.learning_rate > 0.5:
            raise TrainingDiverged("too fast")
        return 0.25

    monkeypatch.setattr(tuning, "train", Trainer(fail))
    rows = tune(small(RATE), tmp_path / "search")
    card = dataclasses.replace(
        presets.get_preset("dynamic_mnist").card, search=record.read(tmp_path / "search", small(RATE))
    )
    (tmp_path / "card.json").write_text(card.to_json(), encoding="utf-8")
    again = read_card(tmp_path / "card.json")
    assert again == card
    assert list(again.search.leaderboard) == rows
    text = again.to_markdown()
    assert "Random search, 6 trials, each at most 1 x 100 training images long." in text
    searched = yaml.safe_load((tmp_path / "search" / "search.yaml").read_text(encoding="utf-8"))
    searched["search"]["images"], searched["train"]["images"] = None, 70
    (tmp_path / "search" / "search.yaml").write_text(yaml.safe_dump(searched), encoding="utf-8")
    assert record.read(tmp_path / "search", small(RATE)).images == 70
    other = dataclasses.replace(small(RATE), model=ConvNet())
    with pytest.raises(ConfigError, match=r"is a search of dynamic on mnist\. Received: cnn on mnist"):
        record.read(tmp_path / "search", other)
    # Folders of pictures are one kind of data, and other pictures each.
    searched["data"] = {"name": "folder", "path": "pictures/cats"}
    (tmp_path / "search" / "search.yaml").write_text(yaml.safe_dump(searched), encoding="utf-8")
    dogs = searched | {"data": {"name": "folder", "path": "pictures/dogs"}}
    with pytest.raises(ConfigError, match=r"dynamic on folder cats\. Received: dynamic on folder dogs"):
        record.read(tmp_path / "search", SimpleNamespace(to_mapping=lambda: dogs))
    assert text.count("25.00%") == sum(row["status"] == "completed" for row in rows)
    assert "failed: too fast" in text


def test_a_folder_without_a_completed_trial_is_no_search_for_a_card(small, tmp_path):
    with pytest.raises(TrialsFailed):
        tune(small("search.images=20", "search.trials=2"), tmp_path)
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="the folder of a search with a completed trial is needed"):
            record.read(folder, small())


def test_if_every_trial_fails_the_search_does(small, tmp_path):
    with pytest.raises(TrialsFailed, match=r"no trial could be trained\. batch_size must be in \[1, 20\]"):
        tune(small("search.images=20", "search.trials=2"), tmp_path)
    assert not (tmp_path / "best.yaml").exists()


@pytest.mark.parametrize(
    "fault", [OSError(28, "No space left on device"), WeightsError("truncated"), OtherRun("no checkpoint")]
)
def test_what_is_no_fault_of_the_values_stops_the_search(small, tmp_path, monkeypatch, fault):
    def fail(*_, **__):
        raise fault

    monkeypatch.setattr(tuning, "train", fail)
    with pytest.raises(type(fault), match=re.escape(str(fault))):
        tune(small(RATE), tmp_path)
    monkeypatch.setattr(tuning, "train", Trainer())
    assert len(tune(small(RATE), tmp_path)) == 6


# Interruptions


def interrupted(function, number, when):
    """`function`, but its call `number` ends the program "before" or "after" it did its work."""
    calls = iter(range(1, number + 1))

    def call(*arguments, **keywords):
        last = next(calls) == number
        if last and when == "before":
            raise Killed
        result = function(*arguments, **keywords)
        if last:
            raise Killed
        return result

    return call


# The claim on the folder, all that is written for the first trial, and some of the second.
@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 16))
def test_a_search_killed_at_any_write_ends_as_if_it_had_not_been(small, tmp_path, trainer, number, when):
    expected = tune(small(RATE, "search.trials=3"), tmp_path / "whole")
    epochs, trainer.calls = [call.epochs for call in trainer.calls], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", interrupted(Path.replace, number, when))
        with pytest.raises(Killed):
            tune(small(RATE, "search.trials=3"), tmp_path / "killed")
    assert tune(small(RATE, "search.trials=3"), tmp_path / "killed") == expected
    assert [call.epochs for call in trainer.calls if call.epochs] == epochs
    state = json.loads((tmp_path / "killed" / "oracle" / "oracle.json").read_text(encoding="utf-8"))
    assert len(state["end_order"]) == len(set(state["end_order"]))


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [HYPERBAND, (RATE,), (RATE, "search.oracle=bayesian")])
def test_a_search_killed_in_a_trial_goes_on_with_that_trial(small, tmp_path, monkeypatch, trainer, overrides):
    expected = tune(small(*overrides), tmp_path / "whole")
    epochs = [(call.folder, epoch) for call in trainer.calls for epoch in call.epochs]
    killed = Trainer(interrupted(trainer.error, 6, "before"))
    monkeypatch.setattr(tuning, "train", killed)
    with pytest.raises(Killed):
        tune(small(*overrides), tmp_path / "killed")
    killed.error = trainer.error
    assert tune(small(*overrides), tmp_path / "killed") == expected
    # Only the epoch in which it was killed is trained again.
    trained = [(call.folder, epoch) for call in killed.calls for epoch in call.epochs]
    assert set(trained) == set(epochs)
    assert len(trained) - len(epochs) <= 1


def test_more_trials_can_be_asked_for_and_the_old_ones_are_kept(small, tmp_path, trainer):
    few = tune(small(RATE, "search.trials=2"), tmp_path)
    assert len(tune(small(RATE, "search.trials=2"), tmp_path)) == len(trainer.calls) == 2
    many = tune(small(RATE, "search.trials=4"), tmp_path)
    assert len(many) == len(trainer.calls) == 4
    assert all(row in many for row in few)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.channels=5", r"model\.channels"),
        ("data.shift=1", r"data\.shift"),
        ("train.batch_size=51", r"train\.batch_size"),
        ("search.epochs=2", r"search\.epochs"),
        ("search.seed=3", r"search\.seed"),
    ],
)
def test_a_folder_belongs_to_one_search(small, tmp_path, trainer, override, message):
    tune(small(RATE, "search.trials=1"), tmp_path)
    with pytest.raises(ConfigError, match=rf"holds another search \(.*{message}.* changed\)"):
        tune(small(RATE, "search.trials=1", override), tmp_path)
    assert len(trainer.calls) == 1


def test_a_search_is_on_the_images_that_it_began_on(small, tmp_path, trainer):
    tune(small(RATE, "search.trials=1"), tmp_path)
    (tmp_path / "images.json").write_text('{"train": "others", "validation": "others"}', encoding="utf-8")
    with pytest.raises(ConfigError, match="holds a search on other images than those that are there now"):
        tune(small(RATE, "search.trials=2"), tmp_path)
    assert len(trainer.calls) == 1


def test_a_trial_that_failed_counts_as_the_worst_before_it(small, tmp_path, monkeypatch):
    def fail(recipe, epoch):
        if recipe.train.learning_rate > 0.5:
            raise TrainingDiverged("too fast")
        return 1.5  # of reconstructions that are worse than black

    told = []
    end = tuning._Tuner.on_trial_end
    monkeypatch.setattr(
        tuning._Tuner, "on_trial_end", lambda self, trial: told.append(trial) or end(self, trial)
    )
    monkeypatch.setattr(tuning, "train", Trainer(fail))
    tune(small(RATE), tmp_path)
    scores = [trial.score for trial in told]
    assert len(scores) == 6
    assert set(scores[scores.index(1.5) :]) == {1.5}


def test_two_searches_do_not_meet_in_a_folder(small, tmp_path, trainer):
    with locked(tmp_path, "busy"), pytest.raises(Busy, match="another process is searching in"):
        tune(small(RATE), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}
    with pytest.raises(ConfigError, match="no section 'search'"):
        tune(dataclasses.replace(small(RATE), search=None), tmp_path / "new")
    assert not (tmp_path / "new").exists()


# With real training


def test_a_trial_in_which_another_process_trains_stops_the_search_and_has_not_failed(small, tmp_path):
    with (
        locked(tmp_path / "trials" / "000", "busy"),
        pytest.raises(Busy, match="another process is training"),
    ):
        tune(small(RATE), tmp_path)
    assert not list(tmp_path.glob("trials/*/failure.txt"))


def test_a_run_that_pauses_ends_with_the_same_bits(small, tmp_path):
    recipe = small("train.epochs=2", "train.images=100")
    train(recipe, tmp_path / "whole")
    assert train(recipe, tmp_path / "paused", pause_after=1)["epoch"] == 1
    assert [record["epoch"] for record in read_log(tmp_path / "paused")] == [1]
    assert train(recipe, tmp_path / "paused", pause_after=1)["epoch"] == 1
    assert train(recipe, tmp_path / "paused")["epoch"] == 2
    expected, _ = read_arrays(tmp_path / "whole" / "checkpoint.safetensors")
    arrays, _ = read_arrays(tmp_path / "paused" / "checkpoint.safetensors")
    for name in expected:
        np.testing.assert_array_equal(arrays[name], expected[name], err_msg=name)


def test_the_best_recipe_has_the_best_values_and_trains_for_its_own_epochs(small, tmp_path, data):
    recipe = small("search.trials=2", "train.epochs=1")
    rows = tune(recipe, tmp_path)
    assert [row["steps"] for row in rows] == [2, 2]
    assert rows[0]["validation_error"] <= rows[1]["validation_error"] <= 1
    assert all(row["seconds"] > 0 for row in rows)
    assert json.loads((tmp_path / "leaderboard.json").read_text(encoding="utf-8")) == rows
    best = read_recipe(tmp_path / "best.yaml")
    for key, value in rows[0]["values"].items():
        part, _, field = key.partition(".")
        assert to_mapping(getattr(best, part))[field] == value
    assert dataclasses.replace(best.train, learning_rate=1, gradient_clip=1, decay_rate=1) == (
        dataclasses.replace(recipe.train, learning_rate=1, gradient_clip=1, decay_rate=1)
    )
    assert (best.data, best.card, best.search) == (recipe.data, recipe.card, None)
    assert train(best, tmp_path / "trained")["step"] == 5


def test_training_can_be_confined_to_a_part_of_the_images():
    split = ArraySplit(np.zeros((50, 1, 1, 1), np.uint8), np.arange(50))
    labels = {}
    for images in (10, 20, None):
        batches = Batches(split, 5, 3, images)
        assert batches.steps_per_epoch == (images or 50) // 5
        epochs = [
            [
                batches.batch_at(e * batches.steps_per_epoch + s)["labels"]
                for s in range(batches.steps_per_epoch)
            ]
            for e in range(2)
        ]
        first, second = (np.concatenate(epoch) for epoch in epochs)
        assert set(first) == set(second)
        assert list(first) != list(second)
        labels[images] = set(first.tolist())
        assert len(labels[images]) == (images or 50)
    assert labels[10] < labels[20] < labels[None]
    assert labels[10] != set(range(10))
    with pytest.raises(ValueError, match=r"images must be in \[1, 50\], the split\. Received: 51"):
        Batches(split, 5, 3, 51)
    with pytest.raises(ValueError, match=r"batch_size must be in \[1, 10\]"):
        Batches(split, 11, 3, 10)


# What is shown


def test_the_drawing_has_a_panel_for_each_key_with_every_trial_in_it(small, tmp_path, monkeypatch, trainer):
    recipe = small()
    rows = tune(recipe, tmp_path)
    rows[-1] |= {"status": "failed", "reason": "x", "validation_error": None}
    monkeypatch.setattr(record, "draw", draw)
    record.write(rows, recipe, tmp_path)
    figure = draw(rows, recipe.search)
    panels = figure.axes
    assert [axes.get_xlabel() for axes in panels] == list(recipe.search.space)
    for axes in panels:
        points, best, crosses = axes.collections
        assert (len(points.get_offsets()), len(crosses.get_offsets())) == (5, 1)
        np.testing.assert_allclose(
            points.get_offsets()[:, 1], [100 * r["validation_error"] for r in rows[:-1]]
        )
        np.testing.assert_allclose(best.get_offsets()[0], points.get_offsets()[0])
    rates = [row["values"]["train.learning_rate"] for row in rows[:-1]]
    np.testing.assert_allclose(panels[3].collections[0].get_offsets()[:, 0], rates)
    assert [axes.get_xscale() for axes in panels] == ["linear", "log", "linear", "log", "linear", "linear"]
    assert [tick.get_text() for tick in panels[4].get_xticklabels()] == ["null", "10"]
    assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG")


def test_a_trial_begins_with_what_a_training_may_begin_with(small, data, tmp_path, trainer):
    find = object()
    tune(small(RATE), tmp_path / "search", find=find)
    assert set(trainer.found) == {find}
    CliRunner().invoke(cli.app, ["tune", str(data / "small.yaml"), RATE, "--out", str(tmp_path / "other")])
    assert trainer.found[-1] is find_start


def test_the_command_shows_the_leaderboard_after_each_trial(data, tmp_path, trainer):
    arguments = ["tune", str(data / "small.yaml"), RATE, "search.trials=2", "--out", str(tmp_path)]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert result.output.count("train.learning_rate") == 2
    (row, _) = json.loads((tmp_path / "leaderboard.json").read_text(encoding="utf-8"))
    assert f"{row['validation_error']:.2%}" in result.output
    assert f"capszoo train {tmp_path / 'best.yaml'} --out {tmp_path / 'best'}" in result.output


# Several processes


@pytest.mark.slow
def test_a_chief_and_two_workers_share_a_search(data, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = {"KERASTUNER_ORACLE_IP": "127.0.0.1", "KERASTUNER_ORACLE_PORT": str(port)}
    command = [sys.executable, "-c", "from capszoo.cli import main; main()", "tune", str(data / "small.yaml")]
    command += ["search.trials=4", "--out", str(tmp_path)]
    processes = {
        name: subprocess.Popen(
            command,
            env=os.environ | address | {"KERASTUNER_TUNER_ID": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("chief", "worker1", "worker2")
    }
    try:
        output = {name: process.communicate(timeout=400)[0] for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    assert [process.returncode for process in processes.values()] == [0, 0, 0], output
    rows = json.loads((tmp_path / "leaderboard.json").read_text(encoding="utf-8"))
    assert sorted(row["trial"] for row in rows) == [0, 1, 2, 3]
    trained = {name: text.count("epoch 1:") for name, text in output.items()}
    assert trained["chief"] == 0
    assert trained["worker1"] + trained["worker2"] == 4
    assert min(trained["worker1"], trained["worker2"]) > 0
    assert read_recipe(tmp_path / "best.yaml").train.epochs == 3
