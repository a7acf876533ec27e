"""A recipe with stages is one training: one command, one folder, the same bits however often it is killed."""

import dataclasses
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from support import Recorded, assert_same_state
from tiny import PROBABILISTIC

from capszoo.config import ConfigError
from capszoo.results.records import key_of
from capszoo.training.claim import claim
from capszoo.training.folder import changes, load_run, stage_folder
from capszoo.training.log import read_log
from capszoo.training.run import train
from capszoo.training.weight_files import read_arrays
from capszoo.zoo import locating, recipes
from capszoo.zoo.loading import load
from capszoo.zoo.presets import get_preset
from capszoo.zoo.publishing import publish
from capszoo.zoo.recipes import parse_recipe, read_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")

# Without routing, with routing, with a decoder: each of two epochs of four steps.
MAPPING = {
    "model": {"name": "dynamic", "channels": 4, "primary_types": 2, "num_iterations": 2},
    "data": {"name": "mnist", "validation": 50},
    "train": {"epochs": 2, "batch_size": 60, "checkpoint_steps": 3},
    "stages": {
        "plain": {"model": {"routing": "sum", "decoder": False}, "train": {"learning_rate": 3e-3}},
        "routed": {"model": {"decoder": False}},
    },
    "card": {"title": "A tiny net", "routing": "dynamic"},
}
FOLDERS = ("stages/plain", "stages/routed", ".")
# As in probabilistic_mnist: parts of one object, three objects of these parts, sleep.
GENERATIVE = {
    **MAPPING,
    "model": {"name": "probabilistic", **PROBABILISTIC, "learns": "sleep"},
    "stages": {
        "plain": {"model": {"learns": "bound", "objects": 1}, "train": {"learning_rate": 3e-3}},
        "routed": {"model": {"learns": "bound"}},
    },
}


class Copies(Recorded):
    """Progress that copies the folder of the run, as a kill would leave it: in a stage, and at a stage's end."""

    def __init__(self, directory, target):
        super().__init__()
        self.directory, self.target, self.first = directory, target, []

    def begin(self, title, total, done=0):
        super().begin(title, total, done)
        self.counts.clear()
        path = self.directory / FOLDERS[len(self.begun) - 1] / "checkpoint.safetensors"
        self.first.append(read_arrays(path)[0])

    def advance(self, count=1, numbers=None):
        super().advance(count, numbers)
        if (len(self.begun), sum(self.counts)) == (2, 6):
            shutil.copytree(self.directory, self.target / "inside")

    def say(self, text):
        super().say(text)
        if len(self.begun) == 2 and text.startswith("epoch 2:"):
            shutil.copytree(self.directory, self.target / "boundary")


@pytest.fixture(scope="module")
def runs(data):
    """The folder `whole` of a run that nobody stopped, what was reported of it, and copies on its way."""
    (data / "staged.yaml").write_text(yaml.safe_dump(MAPPING, sort_keys=False), encoding="utf-8")
    progress = Copies(data / "whole", data)
    train(read_recipe(data / "staged.yaml"), data / "whole", progress)
    return data, progress


def test_one_command_trains_all_stages_into_one_folder(runs):
    root, progress = runs
    assert progress.begun == [("staged, plain", 8, 0), ("staged, routed", 8, 0), ("staged", 8, 0)]
    for folder in FOLDERS:
        assert [r["epoch"] for r in read_log(root / "whole" / folder) if "epoch" in r] == [1, 2]
    recipe, model, _ = load_run(root / "whole")
    assert recipe.to_mapping() == read_recipe(root / "staged.yaml").to_mapping()
    assert [stage.name for stage in recipe.stages] == ["plain", "routed"]
    assert [recipe.at(stage).model.routing for stage in recipe.stages] == ["sum", "dynamic"]
    assert "reconstruction" in model.output


def test_a_stage_begins_with_the_best_weights_of_the_one_before(runs):
    root, progress = runs
    for folder, first in zip(FOLDERS[:2], progress.first[1:], strict=True):
        best, _ = read_arrays(root / "whole" / folder / "best.safetensors")
        fresh = {name for name in first if name.startswith("model/")} - {f"model/{name}" for name in best}
        assert all("decoder" in name for name in fresh)
        for name, array in best.items():
            np.testing.assert_array_equal(first[f"model/{name}"], array, err_msg=name)
    assert fresh, "the last stage has a decoder"


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["inside", "boundary"])
def test_killed_in_a_stage_or_between_two_it_ends_with_the_same_bits(runs, killed):
    root, _ = runs
    steps = [read_arrays(path)[1]["step"] for path in sorted((root / killed).rglob("checkpoint.safetensors"))]
    assert steps == {"inside": [8, 4], "boundary": [8, 8]}[killed]  # and nothing of the last stage
    train(read_recipe(root / "staged.yaml"), root / killed)
    assert_same_runs(root / killed, root / "whole")


@pytest.mark.slow
def test_paused_in_the_last_stage_it_learns_as_slowly_as_before(data, tmp_path):
    train_section = {**MAPPING["train"], "pretrained_rate": 0.1}
    (data / "slow.yaml").write_text(yaml.safe_dump({**MAPPING, "train": train_section}, sort_keys=False))
    recipe = read_recipe(data / "slow.yaml")
    train(recipe, tmp_path / "whole")
    train(recipe, tmp_path / "paused", pause_after=1)
    train(recipe, tmp_path / "paused")
    assert_same_runs(tmp_path / "paused", tmp_path / "whole")


def test_a_stage_that_learns_slowly_goes_on_where_it_was_killed(tmp_path):
    recipe = parse_recipe("slow", {**MAPPING, "train": {**MAPPING["train"], "pretrained_rate": 0.1}})
    for stage in recipe.stages:
        folder = stage_folder(tmp_path, stage)
        folder.mkdir(parents=True)
        claim(recipe.at(stage), folder)
        (folder / "checkpoint.safetensors").touch()
        claim(recipe.at(stage), folder)
        assert read_recipe(folder).train.pretrained_rate == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 1e-7}, r"train\.minimum_learning_rate: must be at most"),
        ({"freeze": "class_capsule"}, r"train\.freeze: must be one of the stages .* 'class_capsule'"),
        ({"stop_at_error": 0.1}, r"train\.stop_at_error needs a validation split"),
    ],
)
def test_what_is_wrong_with_a_later_stage_is_said_before_the_first_is_trained(tmp_path, options, message):
    stages = {**MAPPING["stages"], "routed": {"train": options}}
    mapping = {**MAPPING, "data": {"name": "mnist", "validation": 0}, "stages": stages}
    with pytest.raises(ConfigError, match=message):
        train(parse_recipe("staged", mapping), tmp_path / "run")
    assert not (tmp_path / "run" / "stages").exists()


def assert_same_runs(directory, reference):
    for folder in FOLDERS:
        for file in ("checkpoint", "best"):
            arrays, metadata = read_arrays(directory / folder / f"{file}.safetensors")
            expected, expected_metadata = read_arrays(reference / folder / f"{file}.safetensors")
            assert metadata == expected_metadata
            assert_same_state(arrays, expected)


@pytest.mark.slow
def test_capsules_that_learn_to_generate_in_stages_are_killed_in_each_and_end_with_the_same_bits(tmp_path):
    """Clusters begin the second stage, and a copy of the network the third."""
    (tmp_path / "staged.yaml").write_text(yaml.safe_dump(GENERATIVE, sort_keys=False), encoding="utf-8")
    train(read_recipe(tmp_path / "staged.yaml"), tmp_path / "whole")
    code = "from capszoo.cli import main; main()"
    command = [sys.executable, "-c", code, "train", tmp_path / "staged.yaml", "--out", tmp_path / "killed"]
    for folder in FOLDERS:
        path = tmp_path / "killed" / folder / "checkpoint.safetensors"
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            while run.poll() is None and not (path.exists() and read_arrays(path)[1]["step"] >= 3):
                time.sleep(0.01)
            run.kill()
        assert run.returncode == -signal.SIGKILL
    subprocess.run(command, check=True, capture_output=True)
    assert_same_runs(tmp_path / "killed", tmp_path / "whole")
    # Sleep leaves the generative model alone.
    objects, slept = (read_arrays(tmp_path / "whole" / f / "best.safetensors")[0] for f in FOLDERS[1:])
    np.testing.assert_array_equal(slept["renderer/templates"], objects["renderer/templates"])
    assert np.any(slept["conv1/kernel"] != objects["conv1/kernel"])


def test_a_finished_training_started_again_does_nothing(runs):
    root, _ = runs
    before = {path: path.read_bytes() for path in (root / "whole").rglob("*.safetensors")}
    progress = Copies(root / "whole", root / "none")
    record = train(read_recipe(root / "staged.yaml"), root / "whole", progress)
    assert record == read_log(root / "whole")[-1]
    assert progress.begun == [("staged", 8, 8)]
    assert {path: path.read_bytes() for path in (root / "whole").rglob("*.safetensors")} == before


def test_stages_in_another_order_are_another_training(runs):
    root, _ = runs
    stages = dict(reversed(MAPPING["stages"].items()))
    (root / "reversed.yaml").write_text(yaml.safe_dump({**MAPPING, "stages": stages}, sort_keys=False))
    other, recipe = read_recipe(root / "reversed.yaml"), read_recipe(root / "staged.yaml")
    assert "stages in order: ['plain', 'routed'] -> ['routed', 'plain']" in changes(root / "whole", other)
    assert key_of(other).rpartition("-")[2] != key_of(recipe).rpartition("-")[2]


def test_a_stage_may_have_another_architecture(tmp_path):
    first = {"model": {"name": "unmasked", "channels": 4, "primary_types": 2, "latent_dim": 8}}
    path = tmp_path / "two.yaml"
    path.write_text(
        yaml.safe_dump({**MAPPING, "stages": {"first": first}}, sort_keys=False), encoding="utf-8"
    )
    recipe = read_recipe(path)
    assert recipe.stages[0].model.section_name == "unmasked"
    (tmp_path / "run").mkdir()
    claim(recipe, tmp_path / "run")
    read = read_recipe(tmp_path / "run")
    assert (read.model, read.train, read.stages) == (recipe.model, recipe.train, recipe.stages)
    assert changes(tmp_path / "run", recipe) == ""


def test_what_is_laid_over_a_run_changes_its_stages_as_of_its_recipe(tmp_path):
    path = tmp_path / "staged.yaml"
    path.write_text(yaml.safe_dump(MAPPING, sort_keys=False), encoding="utf-8")
    (tmp_path / "run").mkdir()
    claim(read_recipe(path), tmp_path / "run")
    overrides = ["train.seed=7", "train.learning_rate=5e-4", "model.channels=8"]
    one, other = read_recipe(path, overrides), read_recipe(tmp_path / "run", overrides)
    assert other.stages == one.stages
    assert [stage.train.learning_rate for stage in other.stages] == [3e-3, 5e-4]


def test_a_stage_that_was_changed_is_another_training(runs):
    root, _ = runs
    recipe = read_recipe(root / "staged.yaml", ["stages.plain.train.learning_rate=1e-3"])
    with pytest.raises(ConfigError, match=r"\(stages.plain.train.learning_rate: 0.003 -> 0.001\)"):
        train(recipe, root / "whole")


@pytest.mark.parametrize("change", ["left out", "put before", "deleted"])
def test_a_stage_that_has_begun_is_not_passed_on_to_another_training(runs, tmp_path, change):
    """Else the next one would begin with weights that neither recipe nor card mentions."""
    root, _ = runs
    folder = shutil.copytree(root / "inside", tmp_path / "run")
    stages = dict(MAPPING["stages"])
    if change == "left out":
        del stages["plain"]
    elif change == "put before":
        stages = {"first": {}, **stages}
    else:
        shutil.rmtree(folder / "stages" / "plain")
    other = parse_recipe("staged", {**MAPPING, "stages": stages})
    with pytest.raises(ConfigError, match=r"has begun with other stages .*routed"):
        train(other, folder)
    kept = yaml.safe_load((folder / "recipe.yaml").read_text())
    assert list(kept["stages"]) == ["plain", "routed"]


def test_the_card_records_every_stage(runs, tmp_path, monkeypatch):
    root, _ = runs
    (tmp_path / "configs").mkdir()
    shutil.copy(root / "staged.yaml", tmp_path / "configs")
    monkeypatch.setattr(recipes, "folder", lambda: tmp_path / "configs")
    monkeypatch.setattr(locating, "weights_folder", lambda: tmp_path / "weights")
    monkeypatch.setenv("CAPSZOO_HOME", str(tmp_path / "home"))
    recipe = read_recipe("staged")
    card = publish(recipe, root / "whole", tmp_path / "weights")
    assert card.recipe == recipe.to_mapping()
    assert list(card.stages) == ["plain", "routed"]
    for folder, facts in zip(FOLDERS, [*card.stages.values(), card.training], strict=True):
        _, best = read_arrays(root / "whole" / folder / "best.safetensors")
        assert (facts["steps"], facts["best step"], facts["validation error"]) == (
            8,
            best["step"],
            best["error"],
        )
    assert get_preset("staged").card == card
    assert load("staged").preset.recipe.stages == recipe.stages
    assert f"| stage plain | epochs 2, best step {card.stages['plain']['best step']}, " in card.to_markdown()


def test_weights_that_are_older_than_the_stages_of_their_recipe_keep_their_own_recipe():
    preset = get_preset("probabilistic_mnist")
    older = {part: values for part, values in preset.card.recipe.items() if part != "stages"}
    preset = dataclasses.replace(preset, card=dataclasses.replace(preset.card, recipe=older))
    assert preset.recipe.stages == ()
    assert [stage.name for stage in read_recipe("probabilistic_mnist").stages] == ["parts", "objects"]


def test_the_published_card_records_the_stages_of_its_recipe():
    preset = get_preset("probabilistic_mnist")
    assert list(preset.card.stages) == ["parts", "objects"]
    assert preset.recipe.stages == read_recipe("probabilistic_mnist").stages


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([1], r"stages: a mapping of stages by name is needed\. Received: \[1\]"),
        ({"../a": {}}, r"stages\.\.\./a: a stage's name is a word"),
        ({"a": None}, r"stages\.a: a mapping of sections is needed\. Received: None"),
        ({"a": {"data": {}}}, r"stages\.a\.data: unknown section.* Valid: model, train"),
        ({"a": {"model": 3}}, r"stages\.a\.model: a mapping is needed\. Received: 3"),
        (
            {"a": {"model": {"chanels": 3}}},
            r"stages\.a\.model\.chanels: unknown key; did you mean 'channels'",
        ),
        ({"a": {"train": {"epochs": 0}}}, r"^stages\.a\.train\.epochs: must be at least 1"),
        ({"a": {"train": {"epoch": 1}}}, r"^stages\.a\.train\.epoch: unknown key; did you mean 'epochs'"),
        (
            {"a": {"train": {"start_from": "b"}}},
            r"stages\.a\.train\.start_from: stages begin with the weights",
        ),
    ],
)
def test_a_stage_that_makes_no_sense_is_refused(stages, message):
    with pytest.raises(ConfigError, match=message):
        parse_recipe("tiny", {**MAPPING, "stages": stages})


def test_stages_leave_no_other_weights_to_start_from_and_nothing_to_search():
    with pytest.raises(ConfigError, match=r"^train.start_from: stages begin with the weights"):
        parse_recipe("tiny", {**MAPPING, "train": {"start_from": "a.safetensors"}})
    with pytest.raises(ConfigError, match=r"^search: values are found for one training"):
        parse_recipe("tiny", {**MAPPING, "search": {"space": {}}})
