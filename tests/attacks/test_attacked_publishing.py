"""Publishing: what fails leaves the old preset, whole."""

import numpy as np
import pytest
from support import full_disk
from tiny import RECIPE

from capszoo.config import ConfigError
from capszoo.training.run import train
from capszoo.training.weight_files import WeightsError, read_arrays, write_arrays
from capszoo.zoo.publishing import publish
from capszoo.zoo.recipes import read_recipe

# By name only: many inputs take minutes.
pytestmark = [pytest.mark.attack, pytest.mark.slow]


@pytest.fixture(scope="module")
def published(data):
    """The recipe, the folder of its run, and the folder of the presets."""
    (data / "tiny_mnist.yaml").write_text(RECIPE, encoding="utf-8")
    recipe = read_recipe(data / "tiny_mnist.yaml")
    train(recipe, data / "run")
    publish(recipe, data / "run", data / "weights")
    return recipe, data / "run", data / "weights"


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_full_disks(attacks, published):
    recipe, run, target = published
    before = contents(target)
    for room in (0, 100, 5_000, 50_000):

        def act(room=room):
            with full_disk(room):
                publish(recipe, run, target)

        attacks(f"{room} bytes", act, OSError)
        attacks(f"what {room} bytes leave", lambda: contents(target), harmless=lambda left: left == before)


def test_weights_that_cannot_be_published(attacks, published):
    recipe, run, target = published
    best = run / "best.safetensors"
    before, whole = contents(target), best.read_bytes()
    arrays, metadata = read_arrays(best)
    name = next(iter(arrays))
    spoilt = {
        "NaN": arrays | {name: arrays[name] * np.float32("nan")},
        "too large for float16": arrays | {name: arrays[name] + np.float32(1e6)},
        "one missing": {key: value for key, value in arrays.items() if key != name},
    }
    for what, wrong in spoilt.items():
        write_arrays(best, wrong, metadata)
        attacks(what, lambda: publish(recipe, run, target), WeightsError, ConfigError)
        attacks(f"what {what} leaves", lambda: contents(target), harmless=lambda left: left == before)
    best.write_bytes(whole)
