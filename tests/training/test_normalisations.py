"""Averaged weights have the statistics of what they make of images, in every batch normalisation of the zoo."""

import keras
import numpy as np
import pytest

from capszoo.data.pipeline import Batches
from capszoo.models import SelfRoutingCapsNet, VariationalBayesCapsNet
from capszoo.training import run
from capszoo.training.normalisations import BATCHES, batch_normalisations, measure_normalisations
from capszoo.training.run import train
from capszoo.training.weight_files import load_weights, read_arrays
from capszoo.zoo.recipes import read_recipe

RECIPE = """\
model: {name: self_routing, channels: [4, 4], strides: [2, 2], primary_types: 4, primary_dim: 4}
data: {name: mnist, validation: 50}
train: {epochs: 2, batch_size: 50, learning_rate: 3e-2, checkpoint_steps: 5}
"""


def images(seed):
    return np.random.default_rng(seed).random((6, 20, 20, 1), dtype="float32")


def statistics(model):
    return [
        np.asarray(value)
        for layer in batch_normalisations(model)
        for value in (layer.moving_mean, layer.moving_variance)
    ]


def test_they_are_the_mean_and_the_variance_of_what_a_layer_is_given():
    model = keras.Sequential([keras.Input((20, 20, 1)), keras.layers.BatchNormalization(momentum=0.97)])
    batches = [images(seed) for seed in range(3)]
    measure_normalisations(model, batches)
    np.testing.assert_allclose(model.layers[0].moving_mean[0], np.mean(batches), rtol=1e-5)
    expected = np.mean([batch.var() for batch in batches])
    np.testing.assert_allclose(model.layers[0].moving_variance[0], expected, rtol=1e-4)
    assert model.layers[0].momentum == 0.97


@pytest.mark.parametrize(
    ("architecture", "count"),
    [
        (VariationalBayesCapsNet(channels=4, primary_types=2, conv1_types=2, conv2_types=2), 9),
        (SelfRoutingCapsNet(channels=(4, 4), strides=(2, 2), primary_types=4, primary_dim=4), None),
    ],
)
def test_every_batch_counts_the_same_in_every_layer(architecture, count):
    """Also in those inside of capsule layers, whose routing is compiled."""
    keras.utils.set_random_seed(0)
    model = architecture.build((20, 20, 1), 3)
    assert count is None or len(batch_normalisations(model)) == count
    alone = []
    for seed in (0, 1):
        measure_normalisations(model, [images(seed)])
        alone.append(statistics(model))
    measure_normalisations(model, [images(0), images(1)])
    for both, *each in zip(statistics(model), *alone, strict=True):
        np.testing.assert_allclose(both, np.mean(each, axis=0), rtol=1e-4, atol=1e-6)
        assert not np.allclose(*each, rtol=1e-3, atol=0)


def test_a_frozen_normalisation_keeps_its_own():
    model = keras.Sequential([keras.Input((20, 20, 1)), keras.layers.BatchNormalization(trainable=False)])
    measure_normalisations(model, [images(0)])
    assert float(model.layers[0].moving_mean[0]) == 0.0


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("latest", [BATCHES, 2])
def test_a_run_keeps_averages_with_their_own_statistics_and_trains_on_with_its_own(
    tmp_path, monkeypatch, latest
):
    monkeypatch.setattr(run, "BATCHES", latest)
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    plain, averaged = read_recipe(path), read_recipe(path, ["train.average=0.5"])
    train(plain, tmp_path / "plain")
    train(averaged, tmp_path / "averaged")
    # Averaging only watches.
    (ours, _), (theirs, _) = (
        read_arrays(tmp_path / name / "checkpoint.safetensors") for name in ("averaged", "plain")
    )
    for name, value in theirs.items():
        if name.startswith("model/"):
            np.testing.assert_array_equal(ours[name], value, err_msg=name)

    model = averaged.build()
    load_weights(model, tmp_path / "averaged" / "best.safetensors")
    kept = statistics(model)
    _, metadata = read_arrays(tmp_path / "averaged" / "best.safetensors")
    assert 2 < metadata["step"] < BATCHES, "all steps up to there are looked at, or the latest of them"
    steps = range(max(0, metadata["step"] - latest), metadata["step"])
    batches = Batches(averaged.data.open("train"), averaged.train.batch_size, averaged.train.seed)
    measure_normalisations(model, [batches.batch_at(step)["images"] for step in steps])
    for value, again in zip(kept, statistics(model), strict=True):
        np.testing.assert_allclose(value, again, rtol=1e-4, atol=1e-5)
