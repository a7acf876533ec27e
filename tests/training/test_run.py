"""A run is a function of its recipe: whatever happens on the way, it ends with the same weights or with an error."""

import collections
import dataclasses
import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import yaml
from support import Recorded, full_disk
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from capszoo import cli
from capszoo.config import ConfigError
from capszoo.data import ArraySplit, Mnist
from capszoo.models import DynamicCapsNet, EfficientCapsNet
from capszoo.training import checkpoint
from capszoo.training import run as training
from capszoo.training.claim import claim
from capszoo.training.files import write_text
from capszoo.training.folder import BEST, changes, load_best, load_run
from capszoo.training.health import TrainingDiverged, check_health
from capszoo.training.log import LOG, read_log
from capszoo.training.run import train
from capszoo.training.schedule import FlooredDecay
from capszoo.training.scoring import predict_split, wrong
from capszoo.training.weight_files import WeightsError, read_arrays, write_arrays
from capszoo.zoo.recipes import parse_recipe, read_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")

# Three epochs of 20 steps with checkpoints on the way, and a learning rate that reaches its floor.
LONG = """\
model: {name: dynamic, channels: 16, primary_types: 4}
data: {name: mnist, validation: 50}
train: {epochs: 3, batch_size: 12, checkpoint_steps: 7, learning_rate: 2e-3, decay_rate: 0.5, decay_steps: 20,
  minimum_learning_rate: 4e-4}
"""
SMALL = """\
model: {name: dynamic, channels: 4, primary_types: 2, num_iterations: 2, decoder: false}
data: {name: mnist, validation: 50}
train: {epochs: 1, batch_size: 50}
"""
CHECKPOINTS = [7, 14, 20, 27, 34, 40, 47, 54, 60]
TWO_STEPS = ("data.validation=290", "train.batch_size=5")
ONE_STEP = ("train.batch_size=250",)


class Killed(BaseException):
    """What ends a program in the middle of anything."""


@pytest.fixture(scope="module")
def recipes(data):
    """The recipe files `small.yaml`, of one epoch of 5 steps, and `long.yaml`."""
    (data / "small.yaml").write_text(SMALL, encoding="utf-8")
    (data / "long.yaml").write_text(LONG, encoding="utf-8")
    return data


@pytest.fixture
def small(recipes):
    """`small(*overrides)`: the small recipe."""
    return lambda *overrides: read_recipe(recipes / "small.yaml", overrides)


# What weights say of their making, here.
MADE = {"backend": "tensorflow", "accelerator": ""}

Finished = collections.namedtuple("Finished", "recipe directory record progress opened")


@pytest.fixture(scope="module")
def finished(recipes):
    """An uninterrupted run of `long.yaml`, and which splits it opened."""
    recipe, progress, opened = read_recipe(recipes / "long.yaml"), Recorded(), []
    with pytest.MonkeyPatch.context() as patch:
        before = Mnist.open
        patch.setattr(Mnist, "open", lambda self, split: opened.append(split) or before(self, split))
        record = train(recipe, recipes / "finished", progress)
    return Finished(recipe, recipes / "finished", record, progress, opened)


Steps = collections.namedtuple("Steps", "loss jit_compile arrays best")


def two_steps_with(recipes, directory, *overrides):
    """The loss of two steps, whether they were compiled with XLA, and the arrays that were written."""
    options, before = [], keras.Model.compile

    def compile_(self, *arguments, **keywords):
        options.append(keywords)
        return before(self, *arguments, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.Model, "compile", compile_)
        train(read_recipe(recipes / "small.yaml", [*TWO_STEPS, *overrides]), directory)
    (jit_compile,) = {each["jit_compile"] for each in options}
    files = (read_arrays(directory / f"{file}.safetensors")[0] for file in ("checkpoint", "best"))
    return Steps(read_log(directory)[-1]["loss"], jit_compile, *files)


@pytest.fixture(scope="module")
def two_steps(recipes):
    """Two steps in float32 without XLA."""
    return two_steps_with(recipes, recipes / "two_steps")


def timeless(log):
    """A log without the measured speeds."""
    return [{key: value for key, value in record.items() if key != "images_per_second"} for record in log]


def assert_same_run(directory, reference):
    """Weights, optimiser state, best weights, their metadata and the log agree in every bit."""
    for file in ("checkpoint.safetensors", "best.safetensors"):
        (arrays, metadata), (expected, expected_metadata) = (
            read_arrays(d / file) for d in (directory, reference)
        )
        assert metadata == expected_metadata
        assert arrays.keys() == expected.keys()
        for name in expected:
            np.testing.assert_array_equal(
                arrays[name], expected[name], strict=True, err_msg=f"{file}: {name}"
            )
    assert timeless(read_log(directory)) == timeless(read_log(reference))


# What a run does


def test_training_learns(finished):
    log = read_log(finished.directory)
    assert log[-1]["loss"] < 0.6 * log[0]["loss"]
    assert finished.record["validation_error"] < 0.5  # guessing is 0.9


def test_a_run_ends_with_the_record_of_its_last_epoch(finished):
    assert finished.record == read_log(finished.directory)[-1]
    assert finished.record["epoch"] == 3
    assert finished.record["step"] == 60
    assert json.loads(json.dumps(finished.record)) == finished.record


def test_the_log_has_one_line_per_checkpoint_with_all_losses(finished):
    log = read_log(finished.directory)
    assert [record["step"] for record in log] == CHECKPOINTS
    assert [record["epoch"] for record in log if "epoch" in record] == [1, 2, 3]
    for record in log:
        assert record["loss"] == pytest.approx(
            record["scores_loss"] + record["reconstruction_loss"], rel=1e-5
        )
        assert ("validation_error" in record) == (record["step"] % 20 == 0)
        assert record["images_per_second"] > 0


def test_a_line_of_the_log_is_the_mean_over_its_steps(finished):
    for first, record in zip([0, *CHECKPOINTS], read_log(finished.directory), strict=False):
        steps = finished.progress.numbers[first : record["step"]]
        for name in ("loss", "scores_loss"):
            assert record[name] == pytest.approx(np.mean([step[name] for step in steps]), rel=1e-6)


def test_a_finished_run_started_again_does_nothing_and_says_the_same(finished):
    before = {path.name: path.read_bytes() for path in finished.directory.iterdir() if path.is_file()}
    progress = Recorded()
    assert train(finished.recipe, finished.directory, progress) == finished.record
    assert (progress.begun, progress.numbers) == ([("long", 60, 60)], [])
    assert {path.name: path.read_bytes() for path in finished.directory.iterdir() if path.is_file()} == before


def test_progress_counts_every_step_and_says_a_line_for_each_epoch(finished):
    progress = finished.progress
    assert progress.begun == [("long", 60, 0)]
    assert len(progress.numbers) == 60
    assert all(np.isfinite(float(logs["loss"])) for logs in progress.numbers)
    epochs = [record for record in read_log(finished.directory) if "epoch" in record]
    for line, record in zip(progress.said, epochs, strict=True):
        assert line.startswith(f"epoch {record['epoch']}: loss {record['loss']:.4f}, validation error ")


def test_the_test_set_is_never_opened(finished):
    assert set(finished.opened) == {"train", "validation"}


def test_the_folder_holds_the_whole_recipe_defaults_included(finished, recipes):
    text = (finished.directory / "recipe.yaml").read_text(encoding="utf-8")
    (recipes / "again.yaml").write_text(text, encoding="utf-8")
    again = read_recipe(recipes / "again.yaml")
    for part in ("model", "data", "train", "card"):
        assert getattr(again, part) == getattr(finished.recipe, part)
    for field in dataclasses.fields(again.train):
        assert f"{field.name}: " in text


def test_nothing_temporary_is_left_in_the_folder(finished):
    names = {path.name for path in finished.directory.iterdir()} - {".lock"}
    assert names == {"recipe.yaml", "checkpoint.safetensors", "best.safetensors", "log.jsonl", "tensorboard"}


def test_tensorboard_shows_what_the_log_says(finished):
    events = EventAccumulator(str(finished.directory / "tensorboard"), size_guidance={"tensors": 0})
    events.Reload()
    log = read_log(finished.directory)
    assert set(events.Tags()["tensors"]) == {key for record in log for key in record if key != "step"}
    for key in ("loss", "validation_error", "learning_rate"):
        curve = [(event.step, float(make_ndarray(event.tensor_proto))) for event in events.Tensors(key)]
        expected = [(record["step"], np.float32(record[key])) for record in log if key in record]
        assert curve == expected


# Learning rate and gradients


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 1e-3), (500, 1e-3 * 0.96**0.25), (2000, 0.96e-3), (4000, 0.9216e-3), (10**6, 1e-6)]
)
def test_the_learning_rate_decays_smoothly_down_to_its_floor(step, rate):
    schedule = FlooredDecay(1e-3, 0.96, 2000, 1e-6)
    for each in (schedule, FlooredDecay.from_config(schedule.get_config())):
        assert float(each(step)) == pytest.approx(rate, rel=1e-5)


def test_the_optimiser_follows_the_schedule(finished):
    for record in read_log(finished.directory):
        rate = max(4e-4, 2e-3 * 0.5 ** (record["step"] / 20))
        assert record["learning_rate"] == pytest.approx(rate, rel=1e-5)
    assert rate == 4e-4


def first_moments(directory):
    """Norm of Adam's first moments over all variables; after one step it is 0.1 times that of the gradient."""
    arrays, _ = read_arrays(directory / "checkpoint.safetensors")
    return np.sqrt(sum(np.sum(array**2.0) for name, array in arrays.items() if name.endswith("_momentum")))


def test_gradients_are_clipped_by_their_global_norm(small, tmp_path):
    train(small(*ONE_STEP, "train.gradient_clip=1e-3"), tmp_path)
    assert first_moments(tmp_path) == pytest.approx(0.1 * 1e-3, rel=1e-3)


def test_a_start_that_failed_does_not_claim_the_folder(small, tmp_path):
    with pytest.raises(ValueError, match="batch_size"):
        train(small("train.batch_size=251"), tmp_path)
    train(small(*ONE_STEP, "train.gradient_clip=null"), tmp_path)
    assert first_moments(tmp_path) > 0.2 * 1e-3  # and nothing is clipped where nothing was asked for
    assert "batch_size: 250" in (tmp_path / "recipe.yaml").read_text(encoding="utf-8")


# Precision and compilation


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_computes_in_half_and_keeps_variables_in_single(
    recipes, tmp_path, two_steps, precision
):
    mixed = two_steps_with(recipes, tmp_path, f"train.precision={precision}")
    assert mixed.loss != two_steps.loss
    assert mixed.loss == pytest.approx(two_steps.loss, rel=0.05)
    assert keras.config.dtype_policy().name == "float32"
    assert {array.dtype.name for array in mixed.best.values()} == {"float32"}
    assert {array.dtype.name for array in mixed.arrays.values() if array.ndim} == {"float32"}


@pytest.mark.slow
def test_xla_trains_to_the_same_loss(recipes, tmp_path, two_steps):
    xla = two_steps_with(recipes, tmp_path, "train.xla=true")
    assert (xla.jit_compile, two_steps.jit_compile) == (True, False)
    assert xla.loss == pytest.approx(two_steps.loss, rel=1e-4)
    for name, array in two_steps.best.items():
        np.testing.assert_allclose(xla.best[name], array, atol=1e-4, err_msg=name)


# The choice of the best weights


def test_the_lowest_validation_error_decides_what_is_best(finished):
    errors = {r["step"]: r["validation_error"] for r in read_log(finished.directory) if "epoch" in r}
    model, metadata = load_best(finished.recipe, finished.directory)
    assert metadata["error"] == errors[metadata["step"]] == min(errors.values())
    assert finished.record["best_validation_error"] == metadata["error"]
    scores, labels = predict_split(model, finished.recipe.data.open("validation"))
    assert wrong(scores, labels).mean() == metadata["error"]


def test_of_equal_errors_the_later_is_best_and_a_worse_one_changes_nothing(small, tmp_path, monkeypatch):
    """Even where the run is interrupted between the two."""
    mistakes, weights, splits = iter([4, 2, 2, 3]), [], []

    def scripted(model, split):
        weights.append({f"{v.path}": np.asarray(v).copy() for v in model.variables})
        splits.append(split.fingerprint())
        labels = np.arange(10)
        return np.eye(10)[(labels + (labels < next(mistakes))) % 10], labels

    monkeypatch.setattr(training, "predict_split", scripted)
    recipe = small(*ONE_STEP, "train.epochs=4")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_arrays", interrupted(checkpoint.write_arrays, 3, "after"))
        with pytest.raises(Killed):
            train(recipe, tmp_path)
    record = train(recipe, tmp_path)
    assert [r["validation_error"] for r in read_log(tmp_path)] == [0.4, 0.2, 0.2, 0.3]
    assert [r["best_validation_error"] for r in read_log(tmp_path)] == [0.4, 0.2, 0.2, 0.2]
    assert record["best_validation_error"] == 0.2
    best, metadata = read_arrays(tmp_path / "best.safetensors")
    assert metadata == {"step": 3, "error": 0.2, **MADE}
    for name, value in weights[2].items():
        np.testing.assert_array_equal(best[name], value, err_msg=name)
    assert any((weights[1][name] != weights[2][name]).any() for name in best)
    assert set(splits) == {recipe.data.open("validation").fingerprint()}


# The choice of the end


def script_errors(monkeypatch, **mistakes):
    """Lets each evaluation of a split, by its length, make that many mistakes in ten images, one number after another.

    Gives the list of the weights at each evaluation.
    """
    sequences, weights = {len(split): iter(numbers) for split, numbers in mistakes["of"]}, []

    def scripted(model, split):
        weights.append({v.path: np.asarray(v).copy() for v in model.variables})
        labels = np.arange(10)
        return np.eye(10)[(labels + (labels < next(sequences[len(split)]))) % 10], labels

    monkeypatch.setattr(training, "predict_split", scripted)
    return weights


def test_a_run_ends_with_the_first_epoch_whose_validation_error_is_low_enough(small, tmp_path, monkeypatch):
    recipe = small(*ONE_STEP, "train.epochs=5", "train.stop_at_error=0.2")
    script_errors(monkeypatch, of=[(recipe.data.open("validation"), [5, 3, 2, 1])])
    progress = Recorded()
    record = train(recipe, tmp_path, progress)
    assert (record["epoch"], record["validation_error"], record["stopped"]) == (3, 0.2, True)
    assert [r["stopped"] for r in read_log(tmp_path)] == [False, False, True]
    assert progress.begun == [("small", 5, 0)]
    _, metadata = read_arrays(tmp_path / "best.safetensors")
    assert metadata == {"step": 3, "error": 0.2, **MADE}
    again = Recorded()
    assert train(recipe, tmp_path, again) == record
    assert (again.begun, again.numbers) == ([("small", 5, 3)], [])


def test_where_the_test_error_ends_a_run_the_weights_of_that_epoch_are_kept(small, tmp_path, monkeypatch):
    """Even if an earlier epoch was better in validation, and if the run is interrupted before its end."""
    overrides = (*ONE_STEP, "train.epochs=5", "train.stop_at_error=0.3", "train.stop_split=test")
    recipe = small(*overrides)
    scripts = [
        (recipe.data.open("validation"), [1, 4, 5, 2, 2, 2]),
        (recipe.data.open("test"), [6, 4, 4, 3, 3]),
    ]
    weights = script_errors(monkeypatch, of=scripts)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_arrays", interrupted(checkpoint.write_arrays, 3, "before"))
        with pytest.raises(Killed):
            train(recipe, tmp_path)
    record = train(recipe, tmp_path)
    assert [r["test_error"] for r in read_log(tmp_path)][-1] == record["test_error"] == 0.3
    assert [r["stopped"] for r in read_log(tmp_path)] == [False] * (record["epoch"] - 1) + [True]
    assert record["epoch"] < 5
    best, metadata = read_arrays(tmp_path / "best.safetensors")
    assert metadata == {"step": record["step"], "error": record["validation_error"], **MADE}
    assert record["best_validation_error"] == record["validation_error"] > 0.1
    for name, value in weights[-1].items():
        np.testing.assert_array_equal(best[name], value, err_msg=name)


def test_a_run_that_never_gets_there_trains_all_its_epochs(small, tmp_path, monkeypatch):
    recipe = small(*ONE_STEP, "train.epochs=3", "train.stop_at_error=0.1")
    script_errors(monkeypatch, of=[(recipe.data.open("validation"), [5, 2, 4])])
    record = train(recipe, tmp_path)
    assert (record["epoch"], record["stopped"], record["best_validation_error"]) == (3, False, 0.2)


def test_stopping_changes_nothing_before_the_stop(small, tmp_path):
    """Learning rate and other schedules follow the planned epochs."""
    overrides = (*ONE_STEP, "train.epochs=3")
    train(small(*overrides), tmp_path / "whole")
    train(small(*overrides, "train.stop_at_error=1.0"), tmp_path / "stopped")
    (stopped,) = timeless(read_log(tmp_path / "stopped"))
    assert stopped.pop("stopped")
    assert stopped == timeless(read_log(tmp_path / "whole"))[0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("train.stop_at_error=1.5",), "train.stop_at_error: must be a share"),
        (("train.stop_at_error=-0.1",), "train.stop_at_error: must be a share"),
        (("train.stop_split=test",), "'test' needs train.stop_at_error"),
        (("train.stop_at_error=0.1", "train.stop_split=train"), "'train' is not allowed"),
    ],
)
def test_a_stop_that_makes_no_sense_is_refused(small, overrides, message):
    with pytest.raises(ConfigError, match=message):
        small(*overrides)


def test_a_run_from_before_runs_could_stop_goes_on(finished, recipes, tmp_path):
    directory = tmp_path / "old"
    shutil.copytree(finished.directory, directory)
    old = yaml.safe_load((directory / "recipe.yaml").read_text())
    for key in ("stop_at_error", "stop_split"):
        del old["train"][key]
    (directory / "recipe.yaml").write_text(yaml.safe_dump(old))
    arrays, metadata = read_arrays(directory / "checkpoint.safetensors")
    del metadata["stopped"]
    write_arrays(directory / "checkpoint.safetensors", arrays, metadata)
    assert train(finished.recipe, directory) == finished.record


def test_a_run_gives_back_its_recipe_and_its_best_model(finished):
    recipe, model, metadata = load_run(finished.directory)
    assert recipe.name == "finished"
    assert recipe.to_mapping() == finished.recipe.to_mapping()
    expected, expected_metadata = load_best(finished.recipe, finished.directory)
    assert metadata == expected_metadata
    for received, wanted in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(received, wanted)


def test_weights_say_on_what_they_were_trained(finished, tmp_path, small, monkeypatch):
    _, metadata = load_best(finished.recipe, finished.directory)
    assert metadata.items() >= MADE.items()
    monkeypatch.setattr(training, "accelerators", lambda: ["a GPU"])
    train(small(), tmp_path / "run")
    assert read_arrays(tmp_path / "run" / BEST)[1]["accelerator"] == "a GPU"


def test_a_folder_without_a_run_and_one_with_a_foreign_recipe_are_errors_that_name_the_file(tmp_path):
    with pytest.raises(ConfigError, match=rf"there is no run in {tmp_path}: it has no recipe\.yaml"):
        load_run(tmp_path)
    (tmp_path / "recipe.yaml").write_text("model: {name: dynamic, capsules: 3}\ndata: {name: mnist}\n")
    with pytest.raises(ConfigError, match=r"recipe\.yaml: model\.capsules: unknown key"):
        load_run(tmp_path)


# Interruptions


def test_a_folder_in_which_another_process_trains_is_left_alone(finished):
    before = {path: path.read_bytes() for path in finished.directory.iterdir() if path.is_file()}
    hold = (
        "import filelock, sys, time; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(flush=True)"
    )
    hold += "; time.sleep(99)"
    lock = finished.directory / ".lock"
    with subprocess.Popen([sys.executable, "-c", hold, str(lock)], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(ConfigError, match="another process is training in"):
            train(finished.recipe, finished.directory)
        other.kill()
    assert all(path.read_bytes() == content for path, content in before.items())
    train(finished.recipe, finished.directory)  # a dead process holds nothing


def test_without_a_validation_split_the_last_weights_are_kept(small, tmp_path):
    recipe = small("data.validation=0", "train.epochs=2", *ONE_STEP)
    record = train(recipe, tmp_path / "run", Recorded())
    assert "validation_error" not in record
    assert "best_validation_error" not in record
    last, _ = read_arrays(tmp_path / "run" / "checkpoint.safetensors")
    kept, metadata = read_arrays(tmp_path / "run" / "best.safetensors")
    assert metadata == {"step": record["step"], "error": None, **MADE}
    for name, values in kept.items():
        np.testing.assert_array_equal(values, last[f"model/{name}"])


def test_a_stop_at_an_error_needs_a_split_to_measure_it_on(small, tmp_path):
    recipe = small("data.validation=0", "train.stop_at_error=0.5")
    with pytest.raises(ConfigError, match=r"needs a validation split"):
        train(recipe, tmp_path / "run")


@pytest.mark.slow
def test_a_killed_run_started_again_ends_with_the_same_bits(finished, recipes):
    """A real `kill -9` in the middle of an epoch, after a checkpoint, and the same command again."""
    directory = recipes / "killed"
    code = "from capszoo.cli import main; main()"
    command = [sys.executable, "-c", code, "train", recipes / "long.yaml", "--out", directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        step = kill_within_an_epoch(run, directory)
    assert run.returncode == -signal.SIGKILL
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert f"going on from step {step} of 60" in again.stderr
    assert f"best validation error {finished.record['best_validation_error']:.2%}" in again.stdout
    assert_same_run(directory, finished.directory)


def kill_within_an_epoch(run, directory):
    """Kills the process where its checkpoint is of the second or third epoch but not of an epoch's end."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.002)
        if checkpoint_step(directory) < 27:
            continue
        run.send_signal(signal.SIGSTOP)  # so that it cannot go on while its checkpoint is looked at
        step = checkpoint_step(directory)
        if step in (27, 34, 47, 54):
            run.kill()
            return step
        run.send_signal(signal.SIGCONT)
    run.kill()
    raise AssertionError(f"the run was never seen within its second or third epoch:\n{run.stdout.read()}")


def checkpoint_step(directory):
    path = directory / "checkpoint.safetensors"
    return read_arrays(path)[1]["step"] if path.exists() else -1


@pytest.mark.slow
def test_a_gradient_of_many_terms_and_megabytes_is_the_same_every_time(small, tmp_path):
    """TensorFlow adds terms as they arrive, where it believes that memory is short."""
    large = ("model.primary_types=32", "model.num_iterations=3", "train.epochs=3")
    weights = set()
    for run in "abcd":
        train(small(*large), tmp_path / run)
        values = read_arrays(tmp_path / run / BEST)[0]
        weights.add(tuple(values[name].tobytes() for name in sorted(values)))
    assert len(weights) == 1


def test_a_run_interrupted_beside_any_checkpoint_ends_with_the_same_bits_and_lines(
    small, tmp_path, monkeypatch
):
    """Once before and once after a checkpoint is written, and after the very last one; in half precision."""
    overrides = ("train.batch_size=125", "train.epochs=2", "train.checkpoint_steps=1")
    recipe = small(*overrides, "train.precision=mixed_float16")
    train(recipe, tmp_path / "whole")
    for step, when in ((1, "after"), (3, "before"), (4, "after")):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "write_arrays", interrupted(checkpoint.write_arrays, step, when))
            with pytest.raises(Killed):
                train(recipe, tmp_path / "broken")
    assert train(recipe, tmp_path / "broken") == read_log(tmp_path / "broken")[-1]
    assert_same_run(tmp_path / "broken", tmp_path / "whole")
    assert [record["step"] for record in read_log(tmp_path / "broken")] == [1, 2, 3, 4]


def test_how_often_checkpoints_are_written_does_not_change_the_weights(small, tmp_path):
    for steps in (2, 200):
        train(small(f"train.checkpoint_steps={steps}"), tmp_path / str(steps))
    (often, _), (once, _) = (read_arrays(tmp_path / run / "checkpoint.safetensors") for run in ("2", "200"))
    for name, array in once.items():
        np.testing.assert_array_equal(often[name], array, strict=True, err_msg=name)
    assert [record["step"] for record in read_log(tmp_path / "2")] == [2, 4, 5]
    assert [record["step"] for record in read_log(tmp_path / "200")] == [5]


def interrupted(write, step, when):
    """`write_arrays`, but the program ends before or after the checkpoint of `step` is written."""

    def write_and_end(path, arrays, metadata):
        if metadata["step"] != step or when == "after":
            write(path, arrays, metadata)
        if metadata["step"] == step:
            raise Killed

    return write_and_end


def test_equal_runs_have_equal_bytes(small, tmp_path):
    for name in ("first", "second"):
        train(small(*ONE_STEP), tmp_path / name)
    for file in ("best.safetensors", "checkpoint.safetensors"):
        first, second = ((tmp_path / name / file).read_bytes() for name in ("first", "second"))
        assert first == second, file


def test_a_run_with_dropout_goes_on_in_a_process_that_has_made_other_models(small, tmp_path, monkeypatch):
    recipe = read_recipe_of_a_cnn(small)
    train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_arrays", interrupted(checkpoint.write_arrays, 1, "after"))
        with pytest.raises(Killed):
            train(recipe, tmp_path / "killed")
    train(recipe, tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def read_recipe_of_a_cnn(small):
    overrides = ("train.epochs=2", *ONE_STEP)
    mapping = small(*overrides).to_mapping() | {"model": {"name": "cnn", "channels": [2, 2], "hidden": 4}}
    return parse_recipe("cnn", mapping)


def test_a_half_written_line_of_the_log_is_dropped(finished, recipes, tmp_path):
    directory = copy_run(finished.directory, tmp_path / "run")
    with (directory / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 60, "loss": 0.0')
    assert train(finished.recipe, directory) == finished.record
    assert read_log(directory) == read_log(finished.directory)


@pytest.mark.parametrize(
    "lost", [b"\0" * 70, b"\0" * 70 + b"\n", b"\xff\xfe{\n", b"3\n", b"[" * 10_000 + b"\n"]
)
def test_what_a_power_cut_leaves_in_the_log_is_left_out_when_the_run_goes_on(
    finished, tmp_path, caplog, lost
):
    directory = copy_run(finished.directory, tmp_path / "run")
    path = directory / "log.jsonl"
    path.write_bytes(path.read_bytes() + lost)
    with pytest.raises(ConfigError, match=rf"log\.jsonl: line {len(CHECKPOINTS) + 1} is no record"):
        read_log(directory)
    assert train(finished.recipe, directory) == finished.record
    assert read_log(directory) == read_log(finished.directory)
    assert "log.jsonl was damaged" in caplog.text


def test_a_log_that_is_lost_is_an_error_that_names_it(finished, tmp_path):
    directory = copy_run(finished.directory, tmp_path / "run")
    (directory / "log.jsonl").write_bytes(b"\0" * 500)
    with pytest.raises(ConfigError, match=r"log\.jsonl: it has no record"):
        train(finished.recipe, directory)


@pytest.mark.parametrize(
    "change", [{"step": None}, {"step": True}, {"step": "7"}, {"step": 1.5}, {"best_error": "low"}]
)
def test_a_checkpoint_that_does_not_say_of_which_step_it_is_is_an_error(finished, tmp_path, change):
    directory = copy_run(finished.directory, tmp_path / "run")
    arrays, metadata = read_arrays(directory / "checkpoint.safetensors")
    write_arrays(directory / "checkpoint.safetensors", arrays, metadata | change)
    with pytest.raises(WeightsError, match=r"checkpoint\.safetensors is no checkpoint"):
        train(finished.recipe, directory)


@pytest.mark.parametrize(
    "change",
    [None, lambda array: array[:-1], lambda array: np.ascontiguousarray(array.T)],
    ids=["missing", "shorter", "transposed"],
)
def test_a_checkpoint_of_another_model_is_refused_and_stays(finished, tmp_path, change):
    directory = copy_run(finished.directory, tmp_path / "run")
    path = directory / "checkpoint.safetensors"
    arrays, metadata = read_arrays(path)
    name = next(n for n, a in arrays.items() if n.startswith("model/") and a.shape != a.T.shape)
    array = arrays.pop(name)
    if change:
        arrays[name] = change(array)
    write_arrays(path, arrays, metadata)
    before = path.read_bytes()
    with pytest.raises(WeightsError, match="is missing or misshapen"):
        train(finished.recipe, directory)
    assert path.read_bytes() == before


def test_a_rate_of_given_weights_needs_some(tmp_path):
    with pytest.raises(
        ConfigError, match=r"pretrained_rate: nothing is pretrained without train\.start_from"
    ):
        train(read_recipe("dynamic_mnist", ["train.pretrained_rate=0.1"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_freezes_what_lies_below_a_stage_and_slows_given_weights(small, tmp_path):
    train(small(), tmp_path / "first")
    start = f"train.start_from={tmp_path / 'first' / BEST}"
    later = (*ONE_STEP, start, "train.freeze=class_capsules", "train.pretrained_rate=0.01")
    train(small(*later), tmp_path / "second")
    before, after = (read_arrays(tmp_path / name / BEST)[0] for name in ("first", "second"))
    moved = {name: float(np.abs(after[name] - before[name]).max()) for name in before}
    assert not any(amount for name, amount in moved.items() if not name.startswith("class_capsules"))
    # Adam's first step is the learning rate, 1e-3.
    assert max(moved.values()) == pytest.approx(1e-5, rel=0.05)


def test_a_run_goes_on_without_the_weights_that_it_began_with(small, tmp_path):
    train(small(), tmp_path / "first")
    later = small(f"train.start_from={tmp_path / 'first' / BEST}", "train.epochs=2")
    reached = train(later, tmp_path / "second", pause_after=1)["step"]
    shutil.rmtree(tmp_path / "first")
    assert train(later, tmp_path / "second", find=pytest.fail)["step"] == 2 * reached


def test_a_pause_that_lies_behind_gives_the_record_of_its_epoch(small, tmp_path):
    """A run that was killed in its second epoch has a record of steps after that of the first."""
    recipe = small("train.epochs=2")
    first = train(recipe, tmp_path, pause_after=1)
    with (tmp_path / LOG).open("a", encoding="utf-8") as log:
        log.write(json.dumps({"step": first["step"], "loss": 0.1}) + "\n")
    assert train(recipe, tmp_path, pause_after=1) == first


def test_weights_that_no_run_has_written_are_not_a_runs_best(finished, tmp_path):
    directory = copy_run(finished.directory, tmp_path / "run")
    arrays, _ = read_arrays(directory / "best.safetensors")
    write_arrays(directory / "best.safetensors", arrays)
    with pytest.raises(WeightsError, match=r"best\.safetensors does not say of which step"):
        load_run(directory)


def test_a_full_disk_is_an_error_that_names_the_file_and_the_run_goes_on_later(small, tmp_path):
    with full_disk(4096), pytest.raises(OSError, match=r"File too large: '.*checkpoint\.safetensors'"):
        train(small(), tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {"recipe.yaml", ".lock"}
    assert train(small(), tmp_path / "run")["step"] == 5


def test_text_that_finds_no_room_is_an_error_that_names_the_file(tmp_path):
    write_text(tmp_path / "card.json", "before")
    with full_disk(100), pytest.raises(OSError, match=r"File too large: '.*/card\.json'"):
        write_text(tmp_path / "card.json", "x" * 1000)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("card.json", "before")]


def test_a_checkpoint_that_holds_scalars_as_single_elements_is_understood(finished, tmp_path):
    directory = copy_run(finished.directory, tmp_path / "run")
    arrays, metadata = read_arrays(directory / "checkpoint.safetensors")
    scalars = [name for name, array in arrays.items() if array.ndim == 0]
    assert any("iteration" in name for name in scalars)
    flat = {name: np.atleast_1d(array) for name, array in arrays.items()}
    write_arrays(directory / "checkpoint.safetensors", flat, metadata)
    assert train(finished.recipe, directory) == finished.record


def test_a_damaged_checkpoint_is_an_error_and_not_a_new_start(finished, tmp_path):
    directory = copy_run(finished.directory, tmp_path / "run")
    path = directory / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(WeightsError, match="truncated or damaged"):
        train(finished.recipe, directory)
    assert len(read_log(directory)) == len(CHECKPOINTS)


def test_a_checkpoint_without_its_recipe_is_an_error_and_not_another_training(finished, tmp_path):
    directory = copy_run(finished.directory, tmp_path / "run")
    (directory / "recipe.yaml").unlink()
    before = {path: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(ConfigError, match=r"has a checkpoint and no recipe\.yaml, so nobody knows of what"):
        train(finished.recipe, directory)
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


@pytest.mark.parametrize("left", ["best.safetensors", "log.jsonl"])
def test_a_run_without_its_checkpoint_is_an_error_and_not_another_training(finished, tmp_path, left):
    (tmp_path / left).write_bytes((finished.directory / left).read_bytes())
    with pytest.raises(ConfigError, match=rf"has the {left} of a run and no checkpoint\.safetensors"):
        train(finished.recipe, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == [left]


def test_a_rate_that_would_rise_to_its_minimum_begins_no_training_and_can_be_read(small, tmp_path):
    recipe = small("train.learning_rate=1e-6", "train.minimum_learning_rate=1e-5")
    with pytest.raises(
        ConfigError, match=r"^train\.minimum_learning_rate: must be at most .* Received: 1e-05"
    ):
        train(recipe, tmp_path)
    assert not [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")]


def test_a_checkpoint_from_beyond_the_end_is_an_error(finished, tmp_path):
    directory = copy_run(finished.directory, tmp_path / "run")
    arrays, metadata = read_arrays(directory / "checkpoint.safetensors")
    write_arrays(directory / "checkpoint.safetensors", arrays, metadata | {"step": 61})
    with pytest.raises(WeightsError, match=r"checkpoint\.safetensors is of step 61; the run has 60"):
        train(finished.recipe, directory)


def test_what_a_killed_process_was_writing_is_cleared(finished, tmp_path):
    directory = copy_run(finished.directory, tmp_path / "run")
    left = directory / f".checkpoint.safetensors.{32 * 'a'}"
    left.write_bytes(b"half a checkpoint")
    assert train(finished.recipe, directory) == finished.record
    assert not left.exists()


def test_a_run_that_has_lost_its_best_weights_does_not_end_well(finished, tmp_path):
    directory = copy_run(finished.directory, tmp_path / "run")
    (directory / "best.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"best\.safetensors is gone, the best weights up to step 60"):
        train(finished.recipe, directory)


def copy_run(source, target):
    """The files of a run, without its curves."""
    target.mkdir()
    for path in source.iterdir():
        if path.is_file():
            (target / path.name).write_bytes(path.read_bytes())
    return Path(target)


def test_a_folder_of_another_recipe_is_refused_and_left_alone(finished, recipes):
    before = {path: path.stat().st_mtime_ns for path in finished.directory.iterdir()}
    other = read_recipe(recipes / "long.yaml", ["train.seed=1", "model.routing=leaky", "train.epochs=4"])
    with pytest.raises(ConfigError, match="holds a run of another recipe") as error:
        train(other, finished.directory)
    for change in ("train.seed: 0 -> 1", "model.routing: 'dynamic' -> 'leaky'", "train.epochs: 3 -> 4"):
        assert change in str(error.value)
    assert str(error.value).count("->") == 3
    assert str(finished.directory) in str(error.value)
    assert {path: path.stat().st_mtime_ns for path in finished.directory.iterdir()} == before


def test_a_decay_that_the_schedule_does_not_look_at_makes_no_other_recipe(recipes, tmp_path):
    cosine, exponential = (
        [f"train.schedule={schedule}", "train.decay_steps=7"] for schedule in ("cosine", "exponential")
    )
    for overrides, changed in ((cosine, ""), (exponential, "train.decay_steps: 7 -> 20")):
        claim(read_recipe(recipes / "long.yaml", overrides), tmp_path)
        assert changes(tmp_path, read_recipe(recipes / "long.yaml", overrides[:1])) == changed


def test_the_card_may_change_while_a_run_is_going_on(finished, recipes):
    recipe = read_recipe(recipes / "long.yaml", ["card.title=Another"])
    assert train(recipe, finished.directory) == finished.record


# Losses that are not finite


def test_weights_whose_validation_error_is_no_number_are_never_the_best(small, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(training._Run, "_measured", lambda run, split: float("nan"))
        with pytest.raises(TrainingDiverged, match="the validation error of step 5 is nan"):
            train(small(), tmp_path)
    assert not (tmp_path / "best.safetensors").exists()
    assert train(small(), tmp_path)["validation_error"] <= 1


@pytest.mark.rewritten
@pytest.mark.parametrize("precision", ["float32", pytest.param("mixed_float16", marks=pytest.mark.slow)])
def test_a_batch_with_nan_stops_the_run_at_its_last_good_checkpoint(small, tmp_path, monkeypatch, precision):
    """Also in float16, where the optimiser passes over gradients that are not finite and the weights stay so."""
    recipe = small("train.checkpoint_steps=2", "model.decoder=true", f"train.precision={precision}")
    with monkeypatch.context() as patch:
        before = training.Batches.batch_at

        def batch_at(self, step):
            batch = before(self, step)
            return {**batch, "images": batch["images"] * np.float32(np.nan)} if step == 3 else batch

        patch.setattr(training.Batches, "batch_at", batch_at)
        with pytest.raises(
            TrainingDiverged, match=r"between steps 2 and 4; the weights of step 2 are kept in"
        ):
            train(recipe, tmp_path)
    arrays, metadata = read_arrays(tmp_path / "checkpoint.safetensors")
    assert metadata["step"] == 2
    assert all(np.isfinite(array).all() for array in arrays.values())
    assert [record["step"] for record in read_log(tmp_path)] == [2]
    # Once the data are mended, the run goes on from there.
    assert train(recipe, tmp_path)["step"] == 5
    assert [record["step"] for record in read_log(tmp_path)] == [2, 4, 5]


def test_an_absurd_learning_rate_is_one_line_and_exit_status_1(recipes, tmp_path, monkeypatch, capsys):
    overrides = ["train.learning_rate=1e39", "train.checkpoint_steps=1"]
    monkeypatch.setattr(
        sys, "argv", ["capszoo", "train", str(recipes / "small.yaml"), *overrides, "--out", str(tmp_path)]
    )
    monkeypatch.setattr(cli.logging, "basicConfig", lambda **_: None)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    assert "error: the loss stopped being finite between steps 0 and 1" in capsys.readouterr().err
    arrays, metadata = read_arrays(tmp_path / "checkpoint.safetensors")
    assert metadata["step"] == 0
    assert all(np.isfinite(array).all() for array in arrays.values())


# The health check


@pytest.fixture(scope="module")
def images(data):
    return Mnist(validation=50).open("train").batch(np.arange(50), None)["images"]


def health(images, **options):
    """Report and warnings of the check on a fresh network."""
    keras.utils.set_random_seed(0)
    net = DynamicCapsNet(decoder=False, **options)
    recipe = type("Recipe", (), {"model": net})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = check_health(recipe, net.build((28, 28, 1), 10), images)
    return report, [str(warning.message) for warning in caught if "initialisation" in str(warning.message)]


@pytest.mark.parametrize(
    "options",
    [{}, {"routing": "leaky"}, {"channels": 16, "primary_types": 4}],
    ids=["paper", "leaky", "tiny"],
)
def test_the_default_initialisation_is_healthy(images, options):
    report, complaints = health(images, **options)
    assert complaints == []
    assert list(report) == ["conv1", "primary_capsules", "class_capsules"]
    assert all(0.02 <= value <= 0.95 for value in report.values())


def test_a_network_that_does_not_see_its_input_is_warned_of(images):
    _, complaints = health(images, channels=16, primary_types=4, primary_scale=1e-6)
    assert [complaint.partition(":")[0] for complaint in complaints] == ["primary_capsules", "class_capsules"]
    assert all("almost the same for every image" in c and "primary_scale" in c for c in complaints)


def test_saturated_capsules_are_warned_of(images):
    report, complaints = health(images, channels=16, primary_types=4, primary_scale=1000.0)
    assert report["primary_capsules"] > 0.95
    assert any(
        c.startswith("primary_capsules: mean activation 0.9") or "activation 1 " in c for c in complaints
    )


def test_silent_capsules_are_warned_of(images):
    _, complaints = health(0 * images, channels=16, primary_types=4, class_bias=False, primary_scale=1e-6)
    assert any(complaint.startswith("class_capsules: mean activation") for complaint in complaints)


def test_one_image_alone_is_not_taken_for_blindness(images):
    assert health(images[:1], channels=16, primary_types=4)[1] == []


def test_values_that_are_not_finite_before_training_are_an_error(images):
    net = DynamicCapsNet(channels=16, primary_types=4, decoder=False)
    model = net.build((28, 28, 1), 10)
    bias = model.get_layer("primary_capsules").bias
    bias.assign(np.full(bias.shape, np.nan))
    with pytest.raises(TrainingDiverged, match="primary_capsules gives values that are not finite before"):
        check_health(type("Recipe", (), {"model": net}), model, images)


def test_classes_that_pretrained_weights_saturate_are_warned_of(images):
    """The class capsules add up the votes of every position, and larger images have more of these."""
    net = EfficientCapsNet(channels=(4, 4, 4, 8), primary_dim=4)
    small, large = net.build((28, 28, 1), 3), net.build((64, 64, 1), 3)
    recipe = type("Recipe", (), {"model": net})
    wide = np.repeat(np.repeat(images, 3, axis=1), 3, axis=2)[:, 10:74, 10:74]
    for model in (small, large):
        kernel = model.get_layer("class_capsules").kernel
        kernel.assign(20 * kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_health(recipe, small, images, fresh=False)
    with pytest.warns(UserWarning, match=r"class_capsules: mean activation .* begin without weights"):
        check_health(recipe, large, wide, fresh=False)


def test_what_has_learnt_before_is_not_warned_of_but_must_be_finite(images):
    net = DynamicCapsNet(channels=16, primary_types=4, primary_scale=1e-6, decoder=False)
    model, recipe = net.build((28, 28, 1), 10), type("Recipe", (), {"model": net})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = check_health(recipe, model, images, fresh=False)
    with pytest.warns(UserWarning, match="almost the same for every image"):
        assert check_health(recipe, model, images) == report
    bias = model.get_layer("primary_capsules").bias
    bias.assign(np.full(bias.shape, np.nan))
    with pytest.raises(TrainingDiverged, match="not finite"):
        check_health(recipe, model, images, fresh=False)


# Scoring


class ByBrightness:
    """A stand-in for a model: an image's scores are functions of its own brightness."""

    def __init__(self):
        self.sizes = []

    def predict_on_batch(self, images):
        self.sizes.append(len(images))
        brightness = images.mean(axis=(1, 2, 3))
        return {"scores": np.stack([brightness, 1 - brightness], axis=-1)}


@pytest.mark.parametrize("batch_size", [1, 4, 10, 250])
def test_evaluation_sees_every_image_once_in_order_and_unaugmented(batch_size):
    grey = np.arange(10, dtype="uint8")[:, None, None, None] * np.ones((1, 2, 2, 1), "uint8")
    split = ArraySplit(grey, np.arange(10), augment=lambda images, rng: 0 * images)
    model, progress = ByBrightness(), Recorded()
    scores, labels = predict_split(model, split, batch_size, progress)
    done = progress.counts
    np.testing.assert_array_equal(labels, np.arange(10))
    np.testing.assert_allclose(scores[:, 0], np.arange(10) / 255, atol=1e-7)
    assert model.sizes == done
    assert sum(done) == 10
    assert all(size == batch_size for size in done[:-1])


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0]])
def test_a_label_that_is_no_class_is_an_error_and_not_another_class(labels):
    with pytest.raises(ValueError, match=rf"labels must be in \[0, 3\).*{min(labels)} to {max(labels)}"):
        wrong(np.zeros((2, 3)), labels)


def test_an_image_is_right_only_if_its_highest_scores_are_exactly_its_classes():
    scores = np.array([[0.1, 0.9, 0.5], [0.9, 0.1, 0.5], [0.1, 0.5, 0.9]])
    np.testing.assert_array_equal(wrong(scores, [1, 1, 2]), [False, True, False])
    pairs = [[1, 2], [0, 1], [1, 2]]
    np.testing.assert_array_equal(wrong(scores, pairs), [False, True, False])
    for order in itertools.permutations(range(2)):
        np.testing.assert_array_equal(wrong(scores, np.array(pairs)[:, order]), [False, True, False])


def test_scores_that_are_all_equal_are_never_right():
    assert wrong(np.zeros((10, 10)), np.arange(10)).all()


def test_a_run_begins_with_the_weights_of_its_recipe(recipes, tmp_path):
    train(read_recipe(recipes / "small.yaml"), tmp_path / "first")
    weights = tmp_path / "first" / "best.safetensors"
    overrides = [f"train.start_from={weights}", "train.learning_rate=1e-30", "train.minimum_learning_rate=0"]
    train(read_recipe(recipes / "small.yaml", overrides), tmp_path / "second")
    first, second = (read_arrays(tmp_path / name / "best.safetensors")[0] for name in ("first", "second"))
    for name, array in first.items():
        np.testing.assert_allclose(second[name], array, rtol=1e-6, err_msg=name)
