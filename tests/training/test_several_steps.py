"""Under JAX a step in a call of several is the step that Keras takes alone."""

import importlib.util

import numpy as np
import pytest
from under_jax import run_under_jax

from capszoo.training.log import read_log
from capszoo.training.weight_files import read_arrays

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")

# Eleven steps, with checkpoints after the fourth, the eighth and the last; dropout and an average have a state.
RECIPE = """\
model: {name: cnn, channels: [3, 3], hidden: 8, dropout: 0.5}
data: {name: mnist, validation: 20, shift: 2}
train: {epochs: 1, batch_size: 25, images: 275, checkpoint_steps: 4, average: 0.9, mixup: 0.2, schedule: cosine}
"""

# Trains in `alone` as on a CPU, and in `several` as on an accelerator, three steps in a call.
SCRIPT = """
import capszoo.training.run as run
from capszoo.zoo.recipes import read_recipe

recipe = read_recipe("tiny.yaml")
run.train(recipe, "alone")

import capszoo.training.several_steps as several
several.MOST = 3
sizes = []
taken = several.SeveralSteps._stacked

def noted(self, examples):
    sizes.append(len(examples))
    return taken(self, examples)

several.SeveralSteps._stacked = noted
run.accelerators = lambda: ["none"]
run.train(recipe, "several")
assert sizes == [3, 1, 3, 1, 3], sizes
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder in which the script ran under JAX."""
    folder = tmp_path_factory.mktemp("several")
    run_under_jax(SCRIPT, RECIPE, folder)
    return folder


def test_they_end_with_the_weights_and_the_optimiser_of_steps_taken_alone(folder):
    for file in ("best.safetensors", "checkpoint.safetensors"):
        (expected, _), (arrays, _) = (read_arrays(folder / run / file) for run in ("alone", "several"))
        assert arrays.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_allclose(arrays[name], array, rtol=1e-5, atol=1e-6, err_msg=f"{file}: {name}")


def test_they_log_what_steps_taken_alone_do(folder):
    expected, log = (read_log(folder / run) for run in ("alone", "several"))
    for record in (*expected, *log):
        del record["images_per_second"]
    assert [record["step"] for record in log] == [4, 8, 11]
    for wanted, record in zip(expected, log, strict=True):
        assert record == pytest.approx(wanted, rel=1e-5)
