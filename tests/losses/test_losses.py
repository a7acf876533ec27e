"""Losses agree with their oracles, in values and slopes."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles import losses as oracle
from support import numeric_gradient

from capszoo.losses import (
    ActivationCrossEntropy,
    GaussianNegativeLogLikelihood,
    MarginLoss,
    ReconstructionLoss,
    ScoresLogLikelihood,
    SoftmaxOfActivations,
    SpreadLoss,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def lengths_and_targets(rng, images=6, classes=10, present=1):
    targets = np.zeros((images, classes))
    for row in targets:
        row[rng.choice(classes, present, replace=False)] = 1
    return rng.uniform(0, 1, (images, classes)), targets


def slope(loss, targets, outputs):
    outputs = tf.constant(outputs)
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        value = loss(targets, outputs)
    return tape.gradient(value, outputs)


@pytest.mark.parametrize("scaling", ["paper", "official"])
@pytest.mark.parametrize("present", [0, 1, 2])
@pytest.mark.parametrize("classes", [5, 10])
def test_margin_loss_agrees_with_the_oracle(rng, scaling, present, classes):
    lengths, targets = lengths_and_targets(rng, classes=classes, present=present)
    value = MarginLoss(scaling)(targets, lengths.astype("float32"))
    np.testing.assert_allclose(value, oracle.margin_loss(lengths, targets, scaling), rtol=1e-5)


@pytest.mark.parametrize("scaling", ["paper", "official"])
def test_margin_loss_has_the_slope_of_the_oracle(rng, scaling):
    lengths, targets = lengths_and_targets(rng, present=2)
    expected = numeric_gradient(lambda lengths: oracle.margin_loss(lengths, targets, scaling), lengths)
    actual = slope(MarginLoss(scaling, dtype="float64"), targets, lengths)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-8)


def test_the_official_margin_loss_is_a_twentieth_of_the_papers_for_ten_classes(rng):
    lengths, targets = lengths_and_targets(rng)
    lengths = lengths.astype("float32")
    np.testing.assert_allclose(
        MarginLoss("official")(targets, lengths), MarginLoss("paper")(targets, lengths) / 20, rtol=1e-6
    )


def test_margin_loss_is_zero_where_all_margins_are_kept():
    loss = MarginLoss()([[1.0, 0.0, 0.0]], np.array([[0.95, 0.05, 0.0]], "float32"))
    np.testing.assert_array_equal(loss, 0)


def test_margin_loss_gives_one_value_per_image(rng):
    lengths, targets = lengths_and_targets(rng)
    values = MarginLoss(reduction=None)(targets, lengths.astype("float32"))
    expected = [oracle.margin_loss(lengths[i : i + 1], targets[i : i + 1]) for i in range(6)]
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_margin_loss_takes_whole_numbers_as_targets(rng):
    lengths, targets = lengths_and_targets(rng)
    lengths = lengths.astype("float32")
    np.testing.assert_array_equal(
        MarginLoss()(targets.astype("int32"), lengths), MarginLoss()(targets, lengths)
    )


def test_another_scaling_is_refused():
    with pytest.raises(ValueError, match=r"scaling must be 'paper' or 'official'\. Received: 'mean'"):
        MarginLoss("mean")


@pytest.mark.parametrize("shape", [(4, 5, 6, 1), (4, 1, 5, 6, 3), (4, 2, 5, 6, 1)])
def test_reconstruction_loss_agrees_with_the_oracle_in_value_and_slope(rng, shape):
    images, reconstructions = rng.uniform(size=(2, *shape))
    value = ReconstructionLoss()(images.astype("float32"), reconstructions.astype("float32"))
    np.testing.assert_allclose(value, oracle.reconstruction_loss(images, reconstructions), rtol=1e-5)
    expected = numeric_gradient(lambda x: oracle.reconstruction_loss(images, x), reconstructions)
    actual = slope(ReconstructionLoss(dtype="float64"), images, reconstructions)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-9)


def test_two_reconstructions_of_an_image_add_up(rng):
    images, reconstructions = rng.uniform(size=(2, 3, 2, 4, 4, 1)).astype("float32")
    apart = sum(ReconstructionLoss()(images[:, n], reconstructions[:, n]) for n in range(2))
    np.testing.assert_allclose(ReconstructionLoss()(images, reconstructions), apart, rtol=1e-6)


def test_reconstruction_loss_refuses_images_of_another_shape():
    # Broadcasting would compare every image with every reconstruction.
    with pytest.raises(ValueError, match="shape"):
        ReconstructionLoss()(np.zeros((2, 4, 4, 1), "float32"), np.zeros((2, 1, 4, 4, 1), "float32"))


@pytest.mark.parametrize(
    "loss",
    [
        MarginLoss("official"),
        SpreadLoss("official"),
        ReconstructionLoss(0.5),
        GaussianNegativeLogLikelihood(0.3),
    ],
)
def test_a_losss_configuration_makes_it_again(loss):
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(loss)))
    again = keras.saving.deserialize_keras_object(config, safe_mode=True)
    assert type(again) is type(loss)
    assert again.get_config() == loss.get_config()
    targets, outputs = np.full((2, 3, 4, 4, 1), 0.5, "float32"), np.full((2, 3, 4, 4, 1), 0.2, "float32")
    if not isinstance(loss, ReconstructionLoss | GaussianNegativeLogLikelihood):
        targets, outputs = targets[:, :, 0, 0, 0], outputs[:, :, 0, 0, 0]
    if isinstance(loss, GaussianNegativeLogLikelihood):
        targets, outputs = targets[:, 0], outputs[:, 0]
    np.testing.assert_array_equal(again(targets, outputs), loss(targets, outputs))


OF_CLASSES = [ActivationCrossEntropy, MarginLoss, ScoresLogLikelihood, SoftmaxOfActivations, SpreadLoss]


@pytest.mark.parametrize("loss", OF_CLASSES)
@pytest.mark.parametrize("shape", [(4, 1), (4,), (5,)])
def test_labels_are_no_targets(loss, shape):
    """Broadcast, they would compare each image with all classes, or with those of other images."""
    targets, scores = np.zeros(shape, "int32"), np.full((shape[0], 5), 0.2, "float32")
    with pytest.raises(
        ValueError, match=r"targets must have the shape of the outputs, \(\d, 5\)\. Received: "
    ):
        loss()(targets, scores)
    with pytest.raises(ValueError, match="must have the shape of the outputs"):
        tf.function(loss())(tf.constant(targets), tf.constant(scores))


@pytest.mark.parametrize("loss", OF_CLASSES)
def test_targets_of_one_image_are_not_those_of_a_batch(loss):
    with pytest.raises(ValueError, match=r"\(4, 5\)"):
        loss()(np.eye(5, dtype="float32")[:1], np.full((4, 5), 0.2, "float32"))


@pytest.mark.parametrize("loss", OF_CLASSES)
def test_sizes_that_a_graph_does_not_know_are_taken(loss):
    targets, scores = np.eye(5, dtype="float32"), np.full((5, 5), 0.2, "float32")
    signature = [tf.TensorSpec((None, None)), tf.TensorSpec((None, 5))]
    served = tf.function(lambda *both: loss()(*both), input_signature=signature, autograph=False)
    np.testing.assert_allclose(served(targets, scores), loss()(targets, scores), rtol=1e-6)


def test_images_are_not_compared_with_reconstructions_of_other_images():
    with pytest.raises(ValueError, match="images must have the shape of the outputs"):
        GaussianNegativeLogLikelihood()(np.zeros((2, 4, 4, 1)), np.zeros((2, 1, 4, 4, 1)))
    with pytest.raises(ValueError, match="must have the shape of the outputs"):
        ReconstructionLoss()(np.zeros((1, 4, 4, 1)), np.ones((3, 4, 4, 1)))


def test_the_spread_loss_of_an_image_without_a_class_is_zero():
    targets, scores = np.eye(5, dtype="float32")[:2] * [[0], [1]], np.full((2, 5), 0.2, "float32")
    values = SpreadLoss(reduction=None)(targets, scores)
    np.testing.assert_allclose(values, [0, 4], rtol=1e-6)
    np.testing.assert_allclose(slope(SpreadLoss(), targets, scores)[0], 0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("loss", [ActivationCrossEntropy, ScoresLogLikelihood])
def test_losses_of_logarithms_are_numbers_in_half_precision(loss, dtype):
    targets, scores = np.eye(2, dtype="float32"), np.array([[1, 0], [1, 0]], "float32")
    values = loss(reduction=None, dtype=dtype)(targets, scores)
    np.testing.assert_allclose(tf.cast(values, "float32"), loss(reduction=None)(targets, scores), rtol=0.01)


def test_the_cross_entropy_of_activations_has_the_slope_of_logits_however_small_an_activation_is():
    """dL/dx_k = p_k - t_k, of logits x and their softmax p; also where the right class is all but absent."""
    logits = tf.constant([[-14.0, -40.0, -80.0, 0.0, 14.0], [-80.0, -79.0, -81.0, -80.5, -79.5]])
    targets = np.eye(5, dtype="float32")[[1, 0]]
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = ActivationCrossEntropy(reduction="sum")(targets, tf.sigmoid(logits))
    expected = tf.nn.softmax(logits) - targets
    np.testing.assert_allclose(tape.gradient(value, logits), expected, atol=1e-3)
    np.testing.assert_allclose(
        value, tf.nn.softmax_cross_entropy_with_logits(targets, logits).numpy().sum(), rtol=1e-3
    )


@pytest.mark.parametrize("traced", [False, True])
def test_a_softmax_of_activations_takes_them_for_logits_also_where_a_graph_has_made_them_of_logits(
    rng, traced
):
    logits, targets = rng.normal(size=(6, 5)) * 4, np.eye(5)[[0, 1, 2, 3, 4, 0]]

    def value(logits):
        return SoftmaxOfActivations()(targets, keras.ops.sigmoid(logits))

    value = tf.function(value) if traced else value
    powers = np.exp(1 / (1 + np.exp(-logits)))
    expected = -np.mean(np.log(np.sum(targets * powers, axis=1) / np.sum(powers, axis=1)))
    np.testing.assert_allclose(value(tf.constant(logits, "float32")), expected, rtol=1e-6)


def test_a_softmax_of_activations_never_falls_to_zero():
    value = SoftmaxOfActivations()(np.eye(5), np.eye(5, dtype="float32"))
    np.testing.assert_allclose(value, np.log(1 + 4 / np.e), rtol=1e-6)


def test_an_image_that_is_wrong_for_sure_teaches_as_much_as_any():
    """The slope at the logits is score minus target, also where Keras' own loss of scores has none."""
    logits, targets = tf.constant([[40.0, 0.0, -40.0], [0.0, 1.0, 2.0]]), np.eye(3)[[2, 1]]

    def loss(targets, logits):
        return ScoresLogLikelihood(reduction="sum")(targets, tf.nn.softmax(logits))

    np.testing.assert_allclose(loss(targets, logits), 80 + np.log(np.exp([-1, 0, 1]).sum()), rtol=1e-6)
    np.testing.assert_allclose(slope(loss, targets, logits), tf.nn.softmax(logits) - targets, atol=1e-6)
    assert np.isfinite(loss(targets, tf.constant([[0.0, 1e4, 0.0]] * 2)))
