"""Squash and length: the curve of equation 1, and derivatives that exist everywhere."""

import numpy as np
import pytest
import tensorflow as tf
from oracles import dynamic_routing as oracle
from support import numeric_gradient

from capszoo.routing import length, squash


def gradient(function, point):
    point = tf.constant(point)
    with tf.GradientTape() as tape:
        tape.watch(point)
        value = function(point)
    return tape.gradient(value, point).numpy()


@pytest.mark.parametrize("shape", [(4,), (5, 3), (2, 3, 4, 1)])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_squash_agrees_with_the_oracle(shape, scale):
    vectors = scale * np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(
        squash(vectors.astype("float32")), oracle.squash(vectors), rtol=1e-3, atol=1e-6
    )


def test_squash_maps_length_three_to_nine_tenths():
    np.testing.assert_allclose(squash(np.array([0.0, -3.0], "float32")), [0.0, -0.9], rtol=1e-6)


def test_squashed_vectors_are_never_longer_than_one():
    vectors = np.array([[1e3, 0.0], [1e9, -1e9]], "float32")
    assert np.all(np.linalg.norm(squash(vectors), axis=-1) <= 1 + 1e-6)


def test_squash_has_the_slope_of_the_oracle():
    point = np.random.default_rng(0).normal(size=(3, 4))
    mix = np.random.default_rng(1).normal(size=(3, 4))
    slopes = numeric_gradient(lambda vectors: np.sum(mix * oracle.squash(vectors)), point)
    np.testing.assert_allclose(
        gradient(lambda vectors: tf.reduce_sum(mix * squash(vectors)), point), slopes, rtol=1e-5
    )


def test_the_zero_vector_has_zero_squash_and_zero_slope():
    zero = np.zeros((2, 3), "float32")
    np.testing.assert_array_equal(squash(zero), zero)
    np.testing.assert_array_equal(gradient(squash, zero), zero)


def test_length_is_euclidean_and_has_a_finite_slope_at_zero():
    np.testing.assert_allclose(length(np.array([[3.0, 4.0], [0.0, 1.0]], "float32")), [5, 1], rtol=1e-6)
    np.testing.assert_allclose(length(np.zeros(3, "float32")), 3.16e-4, rtol=1e-2)
    np.testing.assert_array_equal(gradient(length, np.zeros((2, 3), "float32")), np.zeros((2, 3)))
