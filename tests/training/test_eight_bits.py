"""Weights in eight bits: how near they are, and what a file of them is to whoever reads it."""

import keras
import numpy as np
import pytest
import safetensors.numpy

from capszoo.training.eight_bits import BLOCK, from_eight_bits, to_eight_bits
from capszoo.training.weight_files import (
    Stored,
    WeightsError,
    load_weights,
    read_arrays,
    read_header,
    save_weights,
)


@pytest.mark.parametrize("shape", [(), (1,), (63,), (3, 5, 7), (64, 2), (129, 3)])
def test_each_number_is_within_half_a_step_of_its_block(shape):
    array = np.random.default_rng(0).normal(size=shape).astype("float32")
    whole, scales = to_eight_bits(array)
    assert (whole.shape, whole.dtype, scales.dtype) == (shape, np.dtype("int8"), np.dtype("float32"))
    again = from_eight_bits(whole, scales)
    assert (again.shape, again.dtype) == (shape, array.dtype)
    for start in range(0, array.size, BLOCK):
        block = slice(start, start + BLOCK)
        step = np.abs(array.ravel()[block]).max() / 127
        assert np.abs(again.ravel()[block] - array.ravel()[block]).max() <= 0.5001 * step


def test_blocks_have_scales_of_their_own_and_zeros_stay_zeros():
    array = np.concatenate([np.full(BLOCK, 1e-6), np.zeros(BLOCK), np.full(BLOCK, -3e4)]).astype("float32")
    np.testing.assert_allclose(from_eight_bits(*to_eight_bits(array)), array, rtol=1e-6)


def test_numbers_too_small_for_a_scale_are_zero():
    assert not from_eight_bits(*to_eight_bits(np.full(3, 1e-45, "float32"))).any()


def network():
    """A network with one large array of weights."""
    images = keras.Input((300,))
    outputs = keras.layers.Dense(7, name="small")(keras.layers.Dense(300, name="large")(images))
    return keras.Model(images, outputs)


@pytest.fixture(scope="module")
def model():
    return network()


@pytest.fixture
def path(model, tmp_path):
    save_weights(model, tmp_path / "weights.safetensors", "int8", {"preset": "a"})
    return tmp_path / "weights.safetensors"


def test_large_arrays_take_eight_bits_a_number_and_small_ones_sixteen(model, path):
    kernel = np.asarray(model.get_layer("large").kernel)
    raw = safetensors.numpy.load_file(path)
    assert {name: array.dtype.name for name, array in raw.items()} == {
        "large/kernel": "int8",
        "large/kernel:scales": "float32",
        "large/bias": "float16",
        "small/kernel": "float16",
        "small/bias": "float16",
    }
    np.testing.assert_array_equal(raw["large/kernel"], to_eight_bits(kernel)[0])


def test_who_reads_sees_float32_and_no_scales(path):
    stored, metadata = read_header(path)
    assert metadata == {"preset": "a"}
    assert stored["large/kernel"] == Stored((300, 300), "float32")
    assert len(stored) == 4
    arrays, _ = read_arrays(path)
    assert {name: Stored(array.shape, array.dtype.name) for name, array in arrays.items()} == stored
    assert set(read_arrays(path, ["large/kernel"])[0]) == {"large/kernel"}


def test_a_model_gets_the_numbers_back(model, path):
    again = network()
    assert load_weights(again, path) == {"preset": "a"}
    kernel = np.asarray(model.get_layer("large").kernel)
    np.testing.assert_array_equal(
        np.asarray(again.get_layer("large").kernel), from_eight_bits(*to_eight_bits(kernel))
    )


@pytest.mark.parametrize("wrong", ["missing", "shorter", "float64", "nan"])
def test_scales_that_do_not_fit_or_are_no_numbers_are_refused(path, wrong):
    arrays = safetensors.numpy.load_file(path)
    scales = arrays.pop("large/kernel:scales")
    if wrong != "missing":
        changed = {"shorter": scales[1:], "float64": scales.astype("float64"), "nan": scales * np.nan}
        arrays["large/kernel:scales"] = changed[wrong]
    safetensors.numpy.save_file(arrays, path)
    again = network()
    before = [weight.copy() for weight in again.get_weights()]
    said = "not finite" if wrong == "nan" else "large/kernel: expected real numbers. Received: int8"
    with pytest.raises(WeightsError, match=said):
        load_weights(again, path)
    for value, earlier in zip(again.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, earlier)
