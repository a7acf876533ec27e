"""A machine with JAX and without TensorFlow trains the same recipe, and TensorFlow runs the weights unchanged."""

import importlib.util
import json

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import RECIPE
from under_jax import run_under_jax

from capszoo.training.folder import load_best
from capszoo.training.log import read_log
from capszoo.training.weight_files import read_arrays
from capszoo.zoo.recipes import read_recipe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed"),
]

# Trains in `whole`, and in `broken` with an end after the first checkpoint; then says what the best weights say.
SCRIPT = """
import json, sys
sys.modules["tensorflow"] = None
sys.modules["tensorflow_datasets"] = None
from pathlib import Path

def train(folder):
    from capszoo.cli import main
    sys.argv = ["capszoo", "train", "tiny.yaml", "--out", folder]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code

class Killed(BaseException):
    pass

def write_and_end(path, arrays, metadata):
    write(path, arrays, metadata)
    if metadata["step"] == 3:
        raise Killed

train("whole")
from capszoo.training import checkpoint as training
write = training.write_arrays
training.write_arrays = write_and_end
try:
    train("broken")
    raise AssertionError("not interrupted")
except Killed:
    training.write_arrays = write
train("broken")

import keras
from capszoo.training.folder import load_best
from capszoo.training.weight_files import write_arrays
from capszoo.zoo.recipes import read_recipe
recipe = read_recipe("tiny.yaml")
images = recipe.data.open("validation").batch(range(20), None)["images"]
model, _ = load_best(recipe, "whole")
outputs = {key: keras.ops.convert_to_numpy(value) for key, value in model.predict_on_batch(images).items()}
write_arrays("outputs.safetensors", {"images": images, **outputs})
loaded = sorted(name for name, module in sys.modules.items() if name.startswith("tensorflow") and module)
Path("facts.json").write_text(json.dumps({"backend": keras.backend.backend(), "loaded": loaded}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder in which the script ran under JAX."""
    folder = tmp_path_factory.mktemp("jax")
    run_under_jax(SCRIPT, RECIPE, folder)
    return folder


def test_it_trains_on_jax_and_nothing_of_tensorflow_is_loaded(folder):
    assert json.loads((folder / "facts.json").read_text(encoding="utf-8")) == {"backend": "jax", "loaded": []}
    log = read_log(folder / "whole")
    assert [record["step"] for record in log] == [3, 5]
    assert log[1]["loss"] < log[0]["loss"]
    assert read_arrays(folder / "whole" / "best.safetensors")[1]["backend"] == "jax"


def test_tensorflow_says_what_jax_said(folder):
    stored, _ = read_arrays(folder / "outputs.safetensors")
    model, metadata = load_best(read_recipe(folder / "tiny.yaml"), folder / "whole")
    outputs = model.predict_on_batch(stored.pop("images"))
    assert metadata["step"] == 5
    assert outputs.keys() == stored.keys() == {"scores", "poses", "reconstruction"}
    for key, expected in stored.items():
        np.testing.assert_allclose(outputs[key], expected, atol=1e-5, err_msg=key)


def test_an_interrupted_run_ends_with_the_same_bits_on_jax_too(folder):
    for file in ("checkpoint.safetensors", "best.safetensors"):
        (arrays, metadata), (expected, expected_metadata) = (
            read_arrays(folder / run / file) for run in ("broken", "whole")
        )
        assert metadata == expected_metadata
        assert arrays.keys() == expected.keys()
        for name in expected:
            np.testing.assert_array_equal(
                arrays[name], expected[name], strict=True, err_msg=f"{file}: {name}"
            )
    assert [record["step"] for record in read_log(folder / "broken")] == [3, 5]


def test_tensorboard_is_written_without_tensorflow(folder):
    events = EventAccumulator(str(folder / "whole" / "tensorboard"))
    events.Reload()
    assert {"loss", "validation_error"} <= set(events.Tags()["tensors"])
    assert [event.step for event in events.Tensors("loss")] == [3, 5]


REFUSED = """
import capszoo, numpy as np, pytest
model = capszoo.load("efficient_mnist")
model.compile("adam")
images, labels = np.random.default_rng(0).uniform(size=(8, 28, 28, 1)).astype("float32"), np.arange(8)
before = model.predict(images, verbose=0)["scores"]
for use in (model.evaluate, model.fit, model.train_on_batch, model.test_on_batch):
    with pytest.raises(ValueError, match="labels are needed"):
        use(images)
    assert np.array_equal(model.predict(images, verbose=0)["scores"], before)
model.fit(images, labels, verbose=0)
after = model.predict(images, verbose=0)["scores"]
assert not np.array_equal(after, before)
with pytest.raises(ValueError, match="labels are needed"):
    model.fit(images[:5], verbose=0)
assert np.array_equal(model.predict(images, verbose=0)["scores"], after)
"""


def test_a_model_keeps_its_weights_where_a_step_is_refused(tmp_path):
    run_under_jax(REFUSED, RECIPE, tmp_path)
