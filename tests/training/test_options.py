"""Schedules, weight decay, averages of weights and mixup, which a recipe asks for by one line each."""

import math

import keras
import numpy as np
import pytest

from capszoo.config import ConfigError, parse
from capszoo.data import ArraySplit, Mnist
from capszoo.models import DynamicCapsNet
from capszoo.training import run as running
from capszoo.training.config import TrainConfig
from capszoo.training.log import read_log
from capszoo.training.mixup import mix
from capszoo.training.run import train
from capszoo.training.schedule import learning_rate_schedule
from capszoo.training.weight_files import read_arrays
from capszoo.zoo.recipes import read_recipe

pytestmark = pytest.mark.usefixtures("data")

RECIPE = """\
model: {name: dynamic, channels: 4, primary_types: 2, num_iterations: 2, decoder: false}
data: {name: mnist, validation: 50}
train: {epochs: 2, batch_size: 50, learning_rate: 1e-2}
"""
# Two epochs of five steps.
STEPS = 10


@pytest.fixture
def run(tmp_path, data):
    """`run(name, *overrides)`: trains in a folder of that name and returns it."""
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE, encoding="utf-8")

    def train_(name, *overrides, pause_after=None):
        train(read_recipe(path, overrides), tmp_path / name, pause_after=pause_after)
        return tmp_path / name

    return train_


def rate(step, **options):
    return float(learning_rate_schedule(TrainConfig(**options), STEPS)(step))


def test_cosine_falls_from_the_learning_rate_to_the_minimum_over_the_whole_run():
    options = {"schedule": "cosine", "learning_rate": 0.1, "minimum_learning_rate": 0.01}
    for step in range(STEPS + 1):
        expected = 0.01 + 0.09 * (1 + math.cos(math.pi * step / STEPS)) / 2
        assert rate(step, **options) == pytest.approx(expected, rel=1e-5)


def test_cosine_rises_during_its_warmup():
    options = {"schedule": "cosine", "learning_rate": 0.1, "warmup_steps": 4, "minimum_learning_rate": 0.0}
    assert [rate(step, **options) for step in range(5)] == pytest.approx([0, 0.025, 0.05, 0.075, 0.1])
    for step in range(4, STEPS + 1):
        expected = 0.1 * (1 + math.cos(math.pi * (step - 4) / (STEPS - 4))) / 2
        assert rate(step, **options) == pytest.approx(expected, abs=1e-8)


def test_a_run_shorter_than_its_warmup_reaches_the_rate_in_its_last_step():
    assert rate(STEPS - 1, schedule="cosine", learning_rate=0.1, warmup_steps=100) == pytest.approx(0.1)


def test_weight_decay_shrinks_what_no_gradient_reaches_but_nothing_of_one_axis(run, monkeypatch):
    # A rate so small that Adam's own steps vanish beside the decay.
    overrides = ("train.learning_rate=1e-6", "train.schedule=cosine", "train.minimum_learning_rate=1e-6")
    plain, _ = read_arrays(run("plain", *overrides) / "best.safetensors")
    decayed, _ = read_arrays(run("decayed", *overrides, "train.weight_decay=1e4") / "best.safetensors")
    # The rate of a step times the decay, for each of ten steps.
    left = (1 - 1e-6 * 1e4) ** STEPS
    for name, value in plain.items():
        expected = value * left if value.ndim >= 2 else value
        np.testing.assert_allclose(decayed[name], expected, atol=3e-5, err_msg=name)


def test_what_is_kept_is_the_average_and_training_goes_on_from_the_weights(run):
    plain = run("plain")
    averaged = run("averaged", "train.average=0.5")
    (ours, _), (theirs, _) = (read_arrays(folder / "checkpoint.safetensors") for folder in (averaged, plain))
    # Averaging only watches: the weights that are trained are the same bits.
    for name, value in theirs.items():
        if name.startswith("model/"):
            np.testing.assert_array_equal(ours[name], value, err_msg=name)
    best, _ = read_arrays(averaged / "best.safetensors")
    averages = [value for name, value in ours.items() if name.endswith("_average")]
    trained = [name for name in best if not np.array_equal(best[name], ours[f"model/{name}"])]
    assert trained
    for name in trained:
        assert any(a.shape == best[name].shape and np.array_equal(a, best[name]) for a in averages), name


def test_the_average_is_an_exponential_one(run, monkeypatch):
    """Recomputed from the weights after each step."""
    seen = []
    before = keras.Model.train_on_batch

    def watch(self, *arguments, **keywords):
        logs = before(self, *arguments, **keywords)
        seen.append([np.asarray(v).copy() for v in self.trainable_variables])
        paths[:] = [v.path for v in self.trainable_variables]
        return logs

    paths = []
    monkeypatch.setattr(keras.Model, "train_on_batch", watch)
    best, _ = read_arrays(run("averaged", "train.average=0.7", "train.epochs=1") / "best.safetensors")
    for path, *values in zip(paths, *seen, strict=True):
        average = values[0]
        for value in values[1:]:
            average = 0.7 * average + 0.3 * value
        np.testing.assert_allclose(best[path], average, rtol=1e-5, atol=1e-7, err_msg=path)


def test_mixup_without_labels_is_refused(tmp_path):
    path = tmp_path / "unlabelled.yaml"
    path.write_text("model: {name: vae}\ndata: {name: mnist, validation: 50}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="mixup mixes labels"):
        train(read_recipe(path, ["train.mixup=0.4"]), tmp_path / "run")


@pytest.mark.parametrize("name", ["train", "validation"])
def test_a_split_without_images_is_refused(run, monkeypatch, name):
    opened = Mnist.open
    empty = ArraySplit(np.zeros((0, 28, 28, 1), "uint8"), np.zeros(0, "int64"))
    monkeypatch.setattr(Mnist, "open", lambda self, split: empty if split == name else opened(self, split))
    with pytest.raises(ConfigError, match="a split without images cannot be trained on or validate"):
        run("empty")


def test_a_network_of_which_nothing_is_measured_takes_no_validation(run, monkeypatch):
    monkeypatch.setattr(DynamicCapsNet, "has", lambda self, role: False)
    with pytest.raises(ConfigError, match="neither classifies nor reconstructs"):
        run("unmeasured")


def test_an_interrupted_run_with_all_options_ends_with_the_same_bits(run, monkeypatch):
    mixed = []
    monkeypatch.setattr(running, "mix", lambda *batch: mixed.append(batch[2]) or mix(*batch))
    overrides = (
        "train.schedule=cosine",
        "train.warmup_steps=2",
        "train.weight_decay=1e-2",
        "train.average=0.8",
        "train.mixup=0.4",
    )
    whole = run("whole", *overrides)
    run("parts", *overrides, pause_after=1)
    parts = run("parts", *overrides)
    for file in ("checkpoint.safetensors", "best.safetensors"):
        first, second = (read_arrays(folder / file)[0] for folder in (whole, parts))
        assert first.keys() == second.keys()
        for name, value in first.items():
            np.testing.assert_array_equal(second[name], value, err_msg=name)
    errors = [[r.get("validation_error") for r in read_log(folder)] for folder in (whole, parts)]
    assert errors[0] == errors[1]
    assert mixed == [0.4] * STEPS * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": 1.0}, r"train.average: must be in \(0, 0.999999\] or null"),
        ({"average": 0.0}, "train.average"),
        ({"weight_decay": -1.0}, "train.weight_decay: must be at least 0"),
        ({"mixup": -0.2}, "train.mixup: must be at least 0"),
        ({"warmup_steps": 5}, "only 'cosine' warms up"),
        ({"schedule": "linear"}, "'linear' is not allowed"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        parse(TrainConfig, options, "train")
