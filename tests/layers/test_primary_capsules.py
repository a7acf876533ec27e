"""Primary capsules are a convolution, a grouping of its channels, a scale, a bias and a squash."""

import keras
import numpy as np
import pytest
from oracles.dynamic_routing import squash
from scipy.signal import correlate
from support import fill

from capszoo.layers import MatrixPrimaryCapsules, PrimaryCapsules


def convolve(features, kernel, stride, padding):
    """Cross-correlation `[B, H, W, C] * [K, K, C, F]`; "same" pads the odd pixel at the end."""
    size = kernel.shape[0]
    if padding == "same":
        total = [max((-(-side // stride) - 1) * stride + size - side, 0) for side in features.shape[1:3]]
        features = np.pad(features, [(0, 0), *((pad // 2, pad - pad // 2) for pad in total), (0, 0)])
    return np.stack(
        [
            np.stack(
                [
                    correlate(image, filter_, mode="valid")[::stride, ::stride, 0]
                    for filter_ in np.moveaxis(kernel, -1, 0)
                ],
                axis=-1,
            )
            for image in features
        ]
    )


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("scale", [1.0, 1 / 32])
def test_they_are_convolution_reshape_scale_bias_and_squash(padding, stride, scale):
    features = np.random.default_rng(0).normal(size=(2, 8, 9, 3))
    layer = PrimaryCapsules(4, 5, 3, strides=stride, padding=padding, scale=scale)
    layer.build(features.shape)
    kernel, bias = (weight.astype("float64") for weight in fill(layer).get_weights())
    maps = convolve(features, kernel, stride, padding)
    expected = squash(scale * maps.reshape(*maps.shape[:3], 4, 5) + bias)
    np.testing.assert_allclose(layer(features.astype("float32")), expected, rtol=1e-3, atol=2e-5)


def test_the_channels_of_one_type_lie_together():
    layer = PrimaryCapsules(2, 3, 1)
    layer.build((None, 1, 1, 1))
    kernel = np.zeros((1, 1, 1, 6), "float32")
    kernel[..., 3:] = [1, 2, 3]
    layer.set_weights([kernel, np.zeros((2, 3), "float32")])
    poses = layer(np.ones((1, 1, 1, 1), "float32"))[0, 0, 0]
    np.testing.assert_array_equal(poses[0], np.zeros(3))
    np.testing.assert_allclose(poses[1], squash([1, 2, 3]), rtol=1e-5)


def test_initial_weights_are_those_of_the_authors_code():
    layer = PrimaryCapsules(32, 8, 9)
    layer.build((None, 20, 20, 16))
    kernel, bias = layer.get_weights()
    np.testing.assert_array_equal(bias, np.full((32, 8), 0.1, "float32"))
    # A normal cut at two standard deviations.
    assert np.abs(kernel).max() <= 0.2
    np.testing.assert_allclose(kernel.std(), 0.088, rtol=0.02)
    assert abs(kernel.mean()) < 1e-3


def test_another_padding_is_refused():
    with pytest.raises(ValueError, match=r"padding must be 'valid' or 'same'\. Received: 'full'"):
        PrimaryCapsules(2, 3, 1, padding="full")


@pytest.mark.parametrize("layer", [lambda: PrimaryCapsules(2, 4, 3), lambda: MatrixPrimaryCapsules(2)])
def test_images_of_any_size_are_taken_by_one_model(layer):
    features = keras.Input((None, None, 3))
    model = keras.Model(features, layer()(features))
    images = np.random.default_rng(0).normal(size=(2, 9, 8, 3)).astype("float32")
    for side in (9, 7):
        found = keras.tree.flatten(model.predict(images[:, :side], verbose=0))
        for one, other in zip(found, keras.tree.flatten(model(images[:, :side])), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_channels_come_last_whatever_keras_is_set_to():
    features = np.random.default_rng(0).normal(size=(2, 9, 8, 3)).astype("float32")
    layer = PrimaryCapsules(2, 4, 3)
    expected = layer(features)
    keras.config.set_image_data_format("channels_first")
    try:
        np.testing.assert_array_equal(layer(features), expected)
    finally:
        keras.config.set_image_data_format("channels_last")
