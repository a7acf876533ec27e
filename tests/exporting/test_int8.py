"""int8 weights: of layers that do not route, one scale a channel; routing is what it was."""

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from support import fill

from capszoo.data.preprocessing import Preprocessing
from capszoo.exporting.int8 import _without_routing, write_int8
from capszoo.exporting.isolation import run_alone
from capszoo.exporting.saved_model import Signatures
from capszoo.layers import DenseCapsules
from capszoo.models import LSTMCapsNet
from capszoo.routing import DynamicRouting

# Its routing has dense layers of its own, and works image by image.
NET = LSTMCapsNet(channels=8, primary_types=4, conv1_types=4, conv2_types=4, units=8, num_iterations=2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model, and its .tflite files of float32 and int8."""
    folder = tmp_path_factory.mktemp("int8")
    keras.utils.set_random_seed(0)
    model = fill(NET.build((28, 28, 1), 10), scale=0.3)
    Signatures(model, Preprocessing(), (28, 28, 1), NET.stages).write_unchecked(folder / "unchecked")
    float32, int8 = folder / "float32.tflite", folder / "int8.tflite"
    run_alone("convert_litert_script.py", folder / "unchecked", float32)
    write_int8(float32, int8, model)
    return model, float32, int8


def arrays_of(path):
    """The constants of the main graph of a .tflite file: name -> type, values, scales."""
    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    found = {}
    for detail in interpreter.get_tensor_details():
        try:
            values = interpreter.get_tensor(detail["index"])
        except ValueError:
            continue
        found[detail["name"]] = (values, detail["quantization_parameters"]["scales"])
    return found


def test_convolutions_have_int8_weights_within_half_a_step_of_their_own(files):
    model, _, path = files
    kernel = np.asarray(model.get_layer("conv1").kernel)
    # [H, W, C, channels] -> [channels, H, W, C]
    kernel = np.moveaxis(kernel, -1, 0)
    quantised = [
        (values, scales)
        for values, scales in arrays_of(path).values()
        if values.dtype == np.int8 and values.shape == kernel.shape
    ]
    ((values, scales),) = quantised
    np.testing.assert_allclose(scales, np.abs(kernel).max(axis=(1, 2, 3)) / 127, rtol=1e-5)
    steps = scales[:, None, None, None]
    assert np.abs(values * steps - kernel).max() <= 0.501 * scales.max()
    assert (np.abs(values * steps - kernel) <= 0.501 * steps).all()


def test_routing_keeps_its_weights(files):
    _, float32, int8 = files
    layers = ("conv1", "primary_capsules")
    for name, (values, _) in arrays_of(int8).items():
        assert values.dtype != np.int8 or any(f"/{layer}" in name for layer in layers), name
    products = [name for name, (values, _) in arrays_of(float32).items() if values.shape == (32, 16)]
    assert products, "the gates of the LSTM"
    for name in products:
        np.testing.assert_array_equal(arrays_of(int8)[name][0], arrays_of(float32)[name][0])


def test_a_network_inside_of_another_model_keeps_its_routing(files):
    model, _, _ = files
    head = keras.Input(model.input_shape[1:])
    outer = keras.Model(head, keras.layers.Dense(3, name="two_of_three")(model(head)["scores"]))
    names = [layer.name for layer in _without_routing(outer) if layer.weights]
    assert names == ["conv1", "norm1", "primary_capsules", "two_of_three"]


def test_routing_inside_of_a_layer_of_ones_own_is_found():
    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.before = keras.layers.Dense(4, name="before")
            self.capsules = DenseCapsules(2, 4, routing=DynamicRouting())

    assert [layer.name for layer in _without_routing(Block())] == ["before"]


def test_scores_move_a_little_and_an_image_means_the_same_in_any_company(files):
    _, float32, int8 = files
    images = np.random.default_rng(0).random((3, 28, 28, 1), dtype="float32")
    images[1] *= 0.1
    exact, rounded = (
        Interpreter(str(path)).get_signature_runner("serving_default")(images=images)
        for path in (float32, int8)
    )
    moved = max(np.abs(exact[name] - rounded[name]).max() / np.abs(exact[name]).max() for name in exact)
    assert 1e-5 < moved < 0.078
    runner = Interpreter(str(int8)).get_signature_runner("serving_default")
    for i in range(3):
        alone = runner(images=images[i : i + 1])
        np.testing.assert_allclose(alone["scores"][0], rounded["scores"][i], atol=1e-5)
