"""Convolutions by Fourier transforms against the convolution itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from capszoo.layers import PrimaryCapsules, fourier
from capszoo.routing import cpu

# Height, width, side of the kernel, stride, channels, filters: strides beyond the kernel, rests that no output uses.
GEOMETRIES = [
    (20, 20, 9, 2, 8, 16),
    (9, 11, 5, 1, 4, 8),
    (10, 7, 4, 3, 3, 5),
    (17, 12, 5, 4, 3, 2),
    (12, 13, 2, 5, 2, 2),
    (8, 8, 1, 1, 2, 2),
]


def numbers(geometry, images=3):
    height, width, size, _, channels, filters = geometry
    generator = np.random.default_rng(0)
    features = generator.normal(size=(images, height, width, channels)).astype("float32")
    kernel = generator.normal(size=(size, size, channels, filters)) / size
    return tf.constant(features), tf.constant(kernel.astype("float32"))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_values_and_gradients_are_those_of_the_convolution(geometry):
    features, kernel = numbers(geometry)
    strides = geometry[3]
    results = []
    for form in (
        lambda: fourier.convolve(features, kernel, strides),
        lambda: ops.conv(features, kernel, strides),
    ):
        with tf.GradientTape() as tape:
            tape.watch([features, kernel])
            values = form()
            loss = tf.reduce_sum(
                values * tf.sin(tf.reshape(tf.range(tf.size(values), dtype="float32"), values.shape))
            )
        results.append([values, *tape.gradient(loss, [features, kernel])])
    for transformed, direct in zip(*results, strict=True):
        np.testing.assert_allclose(transformed, direct, atol=3e-5 * float(tf.reduce_max(tf.abs(direct))))


def test_bfloat16_errs_at_most_twice_as_much_as_the_convolution():
    features, kernel = numbers((20, 20, 9, 2, 32, 32))
    exact = ops.conv(features, kernel, 2)
    rounded = [tf.cast(values, "bfloat16") for values in (features, kernel)]
    errors = [
        float(tf.sqrt(tf.reduce_mean((tf.cast(form(*rounded, 2), "float32") - exact) ** 2)))
        for form in (fourier.convolve, ops.conv)
    ]
    assert errors[0] < 2 * errors[1]


def test_where_sums_of_bfloat16_are_rounded_it_is_computed_in_float32(monkeypatch):
    monkeypatch.setattr(fourier, "_adds_bfloat16_in_float32", lambda: False)
    features, kernel = (tf.cast(values, "bfloat16") for values in numbers((20, 20, 9, 2, 8, 16)))
    result = fourier.convolve(features, kernel, 2)
    assert result.dtype == "bfloat16"
    exact = ops.conv(tf.cast(features, "float32"), tf.cast(kernel, "float32"), 2)
    # Only the result is rounded, to eight bits.
    np.testing.assert_allclose(tf.cast(result, "float32"), exact, rtol=2**-8, atol=1e-4)


def test_transforms_are_for_large_kernels_on_small_images_only():
    def saves(side, size, strides, channels, dtype="float32"):
        features = keras.KerasTensor((None, side, side, channels), dtype)
        return fourier.saves(features, keras.KerasTensor((size, size, channels, channels)), strides)

    assert saves(20, 9, 2, 256)
    assert saves(20, 9, 2, 256, "bfloat16")
    assert not saves(20, 9, 2, 256, "float16")
    assert not saves(20, 3, 2, 256)
    assert not saves(20, 9, 2, 16)
    assert not saves(96, 9, 2, 256)
    assert not saves(6, 9, 2, 256)


@pytest.fixture
def wide_model():
    images = keras.Input((20, 20, 128))
    return keras.Model(images, PrimaryCapsules(16, 8, 9, 2)(images))


def transformed(monkeypatch, call):
    """How often `call` asks for a transformed convolution."""
    asked, real = [], fourier.convolve
    monkeypatch.setattr(fourier, "convolve", lambda *given: asked.append(given) or real(*given))
    call()
    return len(asked)


def test_only_what_stays_here_is_transformed(monkeypatch, wide_model):
    batch = np.zeros((fourier.LEAST_IMAGES, 20, 20, 128), "float32")
    assert transformed(monkeypatch, lambda: wide_model.predict(batch, verbose=0))
    assert transformed(monkeypatch, lambda: wide_model(batch))
    assert not transformed(monkeypatch, lambda: wide_model(batch[1:]))
    function = tf.function(wide_model)
    assert not transformed(monkeypatch, lambda: function(batch))
    with cpu.host_calls(False):
        assert not transformed(monkeypatch, lambda: wide_model(batch))


def test_a_rest_of_a_batch_has_the_same_poses(wide_model):
    images = np.random.default_rng(0).uniform(size=(fourier.LEAST_IMAGES + 3, 20, 20, 128)).astype("float32")
    poses = wide_model.predict(images, batch_size=fourier.LEAST_IMAGES, verbose=0)
    with cpu.host_calls(False):
        direct = ops.convert_to_numpy(wide_model(images))
    np.testing.assert_allclose(poses, direct, atol=1e-5)
