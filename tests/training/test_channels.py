"""First convolutions for other numbers of channels: what images that are alike in all channels become stays."""

import numpy as np
import pytest

from capszoo.models import ConvNet
from capszoo.training.weight_files import given_weights, save_weights, start_weights


def _net(channels, filters=(4, 2)):
    return ConvNet(channels=filters, hidden=4).build((8, 8, channels), 3)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A net of stereo pairs and the file of its weights."""
    path = tmp_path_factory.mktemp("channels") / "weights.safetensors"
    model = _net(2)
    save_weights(model, path)
    return model, path


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_images_alike_in_all_channels_get_the_scores_they_had(pairs, channels):
    model, path = pairs
    other = _net(channels)
    assert start_weights(other, path) == []
    grey = np.random.default_rng(0).uniform(size=(6, 8, 8, 1)).astype("float32")
    expected = model.predict_on_batch(np.repeat(grey, 2, axis=-1))["scores"]
    received = other.predict_on_batch(np.repeat(grey, channels, axis=-1))["scores"]
    np.testing.assert_allclose(received, expected, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 1e-3


def test_a_channel_counts_as_much_as_any_other(pairs):
    _, path = pairs
    other = _net(3)
    start_weights(other, path)
    kernel = np.asarray(other.get_layer("conv1").kernel)
    np.testing.assert_array_equal(kernel[:, :, 0], kernel[:, :, 2])


def test_as_many_channels_keep_the_kernel(pairs):
    model, path = pairs
    other = _net(2)
    start_weights(other, path)
    np.testing.assert_array_equal(other.get_layer("conv1").kernel, model.get_layer("conv1").kernel)


def test_kernels_behind_the_images_are_not_taken_for_others(pairs):
    _, path = pairs
    assert {"conv1/kernel", "conv2/kernel"} <= set(start_weights(_net(3, filters=(5, 2)), path))


def test_a_kernel_for_other_channels_is_counted_as_pretrained(pairs):
    """By what `train.pretrained_rate` goes."""
    _, path = pairs
    assert set(given_weights(_net(3), path)) == {weight.path for weight in _net(3).weights}
    assert "conv1/kernel" not in given_weights(_net(3), path, fresh=("conv1/",))
