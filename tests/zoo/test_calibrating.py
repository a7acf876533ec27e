"""Scores of networks whose loss feels their differences only are shifted to probabilities, and nothing else changes."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from capszoo.models import ConsensusEMNet, KernelCapsNet, LSTMCapsNet
from capszoo.models.architecture import ShiftsScores
from capszoo.zoo.calibrating import calibrate

SMALL = {"channels": 6, "primary_types": 2, "conv1_types": 3, "conv2_types": 4}
NETS = {"kernel": KernelCapsNet(**SMALL), "lstm": LSTMCapsNet(**SMALL, units=4, num_iterations=2)}
IMAGES = np.random.default_rng(0).random((250, 20, 20, 1), dtype="float32")


class Images:
    """A split of the pictures above."""

    def __len__(self):
        return len(IMAGES)

    def batch(self, indices, rng):
        assert rng is None
        return {"images": IMAGES[indices]}


def of(architecture):
    """A recipe, as far as is needed, and a network."""
    # By these weights the two highest scores of every picture differ by more than a shift of 35 rounds away.
    keras.utils.set_random_seed(5)
    recipe = SimpleNamespace(model=architecture, data=SimpleNamespace(open={"train": Images()}.get))
    return recipe, architecture.build((20, 20, 1), 5)


def scores(model):
    return np.asarray(model.predict_on_batch(IMAGES)["scores"], "float64")


@pytest.mark.parametrize("amount", [0.0, -35.0])
@pytest.mark.parametrize("name", NETS)
def test_scores_of_the_training_images_sum_to_one_on_average_and_keep_their_differences(name, amount):
    recipe, model = of(NETS[name])
    recipe.model.shift(model, amount)
    before, weights = scores(model), [weight.copy() for weight in model.get_weights()]
    assert abs(before.sum(axis=1).mean() - 1) > 0.1
    calibrate(recipe, model)
    after = scores(model)
    np.testing.assert_allclose(after.sum(axis=1).mean(), 1, atol=1e-4)
    logits = [np.log(part) - np.log1p(-part) for part in (before, after)]
    np.testing.assert_allclose(logits[1] - logits[0], (logits[1] - logits[0])[0, 0], atol=1e-3)
    assert (after.argmax(axis=1) == before.argmax(axis=1)).all()
    changed = [(old != new).any() for old, new in zip(weights, model.get_weights(), strict=True)]
    assert sum(changed) == 1


@pytest.mark.parametrize(("length", "looked_at"), [(7, 7), (2000, 2000), (5000, 2000)])
def test_images_of_all_classes_are_looked_at_where_classes_come_one_after_the_other(length, looked_at):
    seen = []

    class Sorted(Images):
        def __len__(self):
            return length

        def batch(self, indices, rng):
            seen.extend(indices)
            return super().batch(np.asarray(indices) % len(IMAGES), rng)

    recipe, model = of(NETS["kernel"])
    recipe.data.open = {"train": Sorted()}.get
    calibrate(recipe, model)
    assert len(set(seen)) == len(seen) == looked_at
    shares = np.histogram(seen, bins=min(length, 5), range=(0, length))[0]
    assert shares.max() - shares.min() <= 1


JAX = """
import keras, numpy as np
from zoo.test_calibrating import NETS
images = np.random.default_rng(0).random((4, 20, 20, 1), dtype="float32")
for architecture in NETS.values():
    keras.utils.set_random_seed(0)
    model = architecture.build((20, 20, 1), 5)
    scores = []
    for amount in (0.0, 0.5):
        architecture.shift(model, amount)
        scores.append(np.asarray(model.predict_on_batch(images)["scores"], "float64"))
    before, after = (np.log(part) - np.log1p(-part) for part in scores)
    np.testing.assert_allclose(after - before, 0.5, atol=1e-3)
"""


@pytest.mark.slow
def test_scores_are_shifted_under_jax_too():
    pytest.importorskip("jax")
    search = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": search}
    done = subprocess.run([sys.executable, "-c", JAX], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("loss", ["spread", "margin"])
def test_where_the_loss_feels_the_scores_themselves_they_stay(loss):
    architecture = dataclasses.replace(NETS["lstm"], loss=loss)
    recipe, model = of(architecture)
    assert not architecture.has(ShiftsScores)
    before = scores(model)
    calibrate(recipe, model)
    np.testing.assert_array_equal(scores(model), before)


def test_em_routing_is_left_alone():
    recipe, model = of(ConsensusEMNet(**SMALL))
    before = scores(model)
    calibrate(recipe, model)
    np.testing.assert_array_equal(scores(model), before)
