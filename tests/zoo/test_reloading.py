"""`.keras` files of the zoo's models are read by `import capszoo` alone."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import capszoo
from capszoo.zoo.presets import Preset, get_preset

READ = """
import sys
{first}
{second}
import numpy as np
model = keras.saving.load_model(sys.argv[1])
stored = np.load(sys.argv[2])
np.testing.assert_allclose(model.predict(stored["images"], verbose=0)["scores"], stored["scores"], atol=1e-6)
assert model.preset.name == "matrix_em_smallnorb"
assert model.preset.card.trained_on == "synthnorb"
assert model.preset.recipe.data.raw_shape == model.raw_shape == (96, 96, 2)
assert model.preprocess(np.zeros((1, 96, 96, 2), "float32")).shape == (1, 32, 32, 2)
assert model.class_names[0] == "four-legged animals"
print("read")
"""


def test_a_preset_is_the_same_after_a_file():
    preset = get_preset("matrix_em_mnist")
    assert Preset.from_config(preset.get_config()) == preset
    untrained = get_preset("sparse_mnist_expanded")
    assert Preset.from_config(untrained.get_config()) == untrained


def test_keras_knows_presets_by_a_name_of_this_package():
    preset = get_preset("matrix_em_mnist")
    written = keras.saving.serialize_keras_object(preset)
    assert written["registered_name"] == "capszoo>Preset"
    assert keras.saving.deserialize_keras_object(written) == preset


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:matrix_em_smallnorb")
@pytest.mark.parametrize("order", [("import capszoo", "import keras"), ("import keras", "import capszoo")])
def test_a_fresh_process_reads_a_model_with_what_belongs_to_it(order, tmp_path):
    model = capszoo.load("matrix_em_smallnorb")
    images = np.random.default_rng(0).standard_normal((2, 32, 32, 2)).astype("float32")
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "outputs.npz", images=images, scores=model.predict(images, verbose=0)["scores"])
    script = READ.format(first=order[0], second=order[1])
    command = [sys.executable, "-c", script, str(tmp_path / "model.keras"), str(tmp_path / "outputs.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("read\n"), done.stderr
