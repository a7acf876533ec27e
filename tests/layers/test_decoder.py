"""The decoder: three dense layers, the same for every capsule that is decoded."""

import numpy as np
from support import fill

from capszoo.layers import Decoder


def test_it_is_two_relus_and_a_sigmoid():
    masked = np.random.default_rng(0).normal(size=(3, 2, 8))
    layer = Decoder((4, 3, 2), hidden=(6, 7))
    layer.build(masked.shape)
    w1, b1, w2, b2, w3, b3 = (weight.astype("float64") for weight in fill(layer).get_weights())
    hidden = np.maximum(np.maximum(masked @ w1 + b1, 0) @ w2 + b2, 0)
    expected = 1 / (1 + np.exp(-(hidden @ w3 + b3)))
    np.testing.assert_allclose(layer(masked.astype("float32")), expected.reshape(3, 2, 4, 3, 2), rtol=1e-4)


def test_its_sizes_are_those_of_the_paper_by_default():
    layer = Decoder((28, 28, 1))
    layer.build((None, 1, 160))
    assert [tuple(weight.shape) for weight in layer.weights[::2]] == [(160, 512), (512, 1024), (1024, 784)]
    assert layer.count_params() == 1_411_344


def test_biases_begin_at_a_tenth():
    layer = Decoder((2, 2, 1), hidden=(3, 3))
    layer.build((None, 1, 4))
    for bias in layer.get_weights()[1::2]:
        np.testing.assert_array_equal(bias, np.full_like(bias, 0.1))
