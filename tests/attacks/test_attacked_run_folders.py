"""Folders of runs: a damaged file is an error of one line, or harmless."""

import shutil

import pytest
from attacks.damage import damaged
from tiny import RECIPE

from capszoo.config import ConfigError
from capszoo.training.folder import load_run
from capszoo.training.log import read_log
from capszoo.training.run import train
from capszoo.training.weight_files import WeightsError
from capszoo.zoo.recipes import read_recipe

# By name only: many inputs take minutes.
pytestmark = [pytest.mark.attack, pytest.mark.slow]


@pytest.fixture(scope="module")
def finished(data):
    """The recipe and the folder of a run."""
    (data / "tiny_mnist.yaml").write_text(RECIPE, encoding="utf-8")
    recipe = read_recipe(data / "tiny_mnist.yaml")
    train(recipe, data / "run")
    return recipe, data / "run"


def copy_of(folder, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("tensorboard", ".lock"))
    return target


def test_damaged_logs(attacks, finished, tmp_path):
    contents = (finished[1] / "log.jsonl").read_bytes()
    for what, copy in damaged(contents, attacks.rng, 300):
        (tmp_path / "log.jsonl").write_bytes(copy)
        attacks(
            what,
            lambda: read_log(tmp_path),
            ConfigError,
            # A flipped bit may make another number, and a cut at the end of a line a shorter log.
            harmless=lambda log: log and all(isinstance(record["step"], int) for record in log),
        )


def test_damaged_recipes_and_weights(attacks, finished, tmp_path):
    for file, count in (("recipe.yaml", 24), ("best.safetensors", 24)):
        for what, copy in damaged((finished[1] / file).read_bytes(), attacks.rng, count):
            folder = copy_of(finished[1], tmp_path / "run")
            (folder / file).write_bytes(copy)
            attacks(
                f"{file} {what}",
                lambda folder=folder: load_run(folder),
                ConfigError,
                WeightsError,
                ValueError,
                harmless=bool,
            )


def test_runs_that_go_on_from_damaged_folders(attacks, finished, tmp_path):
    recipe, whole = finished
    for file in ("checkpoint.safetensors", "recipe.yaml", "log.jsonl", "best.safetensors"):
        contents = (whole / file).read_bytes()
        for what, copy in [*damaged(contents, attacks.rng, 2), ("empty", b""), ("missing", None)]:
            folder = copy_of(whole, tmp_path / "run")
            (folder / file).unlink()
            if copy is not None:
                (folder / file).write_bytes(copy)
            attacks(
                f"{file} {what}",
                lambda folder=folder: train(recipe, folder),
                ConfigError,
                WeightsError,
                FileNotFoundError,
                harmless=lambda record: "step" in record,
            )
