"""Sparsity of presences and explanations agrees with its oracle."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles import stacked_capsules as oracle
from support import numeric_gradient

from capszoo.losses import ExplanationSparsity, NegativeLogDensity, PresenceSparsity, SquaredOutput

WITHIN, BETWEEN = 0.7, 0.2


@pytest.fixture
def amounts():
    return np.random.default_rng(0).random((6, 4))


def prior(presence):
    within, between = oracle.prior_sparsity(presence, 5)
    return WITHIN * within + BETWEEN * between


def posterior(explained):
    within, between = oracle.posterior_sparsity(explained)
    return WITHIN * within - BETWEEN * between


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(PresenceSparsity(5, WITHIN, BETWEEN), prior), (ExplanationSparsity(WITHIN, BETWEEN), posterior)],
    ids=["presence", "explanation"],
)
def test_sparsity_has_the_value_and_the_slope_of_the_oracle(amounts, loss, expected):
    outputs = tf.constant(amounts, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        value = loss(tf.zeros_like(outputs), outputs)
    assert float(value) == pytest.approx(expected(amounts), rel=1e-5)
    slope = numeric_gradient(expected, amounts)
    np.testing.assert_allclose(tape.gradient(value, outputs), slope, rtol=1e-3, atol=1e-5)


def test_presences_that_tell_as_many_classes_apart_cost_nothing():
    presence = np.tile(np.eye(5, dtype="float32"), (2, 1))
    assert float(PresenceSparsity(5)(presence, presence)) == pytest.approx(0, abs=1e-6)


def test_one_object_for_each_image_and_all_for_all_explain_best():
    best = np.eye(4, dtype="float32")
    others = np.full((4, 4), 0.25, "float32"), np.tile(best[:1], (4, 1))
    loss = ExplanationSparsity()
    assert all(float(loss(best, best)) < float(loss(best, other)) - 0.1 for other in others)


def test_nothing_explained_has_finite_slopes():
    outputs = tf.zeros((3, 4))
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        value = ExplanationSparsity()(outputs, outputs)
    assert np.isfinite(value)
    assert np.all(np.isfinite(tape.gradient(value, outputs)))


def test_sums_of_outputs_are_of_images(amounts):
    outputs = amounts.reshape(3, 4, 2).astype("float32")
    densities = NegativeLogDensity(reduction=None)(outputs, outputs)
    np.testing.assert_allclose(densities, -outputs.sum(axis=(1, 2)), rtol=1e-6)
    squares = SquaredOutput(10.0, reduction=None)(outputs, outputs)
    np.testing.assert_allclose(squares, 5 * np.square(outputs).sum(axis=(1, 2)), rtol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [NegativeLogDensity(), SquaredOutput(3.0), PresenceSparsity(7, 1.0, 0.5), ExplanationSparsity(0.1)],
)
def test_losses_are_made_again_from_their_configuration(loss, amounts):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    outputs = amounts.astype("float32")
    assert float(again(outputs, outputs)) == float(loss(outputs, outputs))


def test_no_classes_are_refused():
    with pytest.raises(ValueError, match=r"classes must be at least 1\. Received: 0"):
        PresenceSparsity(0)
