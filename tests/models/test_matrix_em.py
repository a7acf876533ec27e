"""The network of Hinton et al. 2018 and its convolutional baseline: sizes, ablations, losses, exports."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from oracles import losses as oracle
from support import arrays, assert_nearer_than_other_rows, dtype_policy, fill

from capszoo.layers.matrix import ConvCapsules
from capszoo.losses import ActivationCrossEntropy, MarginLoss, SpreadLoss, spread_margin
from capszoo.models import ConvNet, MatrixCapsNet
from capszoo.models.network import trainable_parameters

LARGE = MatrixCapsNet()
SMALL = MatrixCapsNet(channels=64, primary_types=8, conv1_types=16, conv2_types=16)
TINY = MatrixCapsNet(channels=8, primary_types=2, conv1_types=3, conv2_types=4)
PAIRS = (32, 32, 2)


@functools.cache
def built(architecture, image_shape=PAIRS, num_classes=5):
    return architecture.build(image_shape, num_classes)


def drawn(count=6, image_shape=PAIRS, seed=0):
    return np.random.default_rng(seed).normal(size=(count, *image_shape)).astype("float32")


# Sizes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "image_shape", "num_classes", "parameters"),
    [
        (LARGE, PAIRS, 5, 316_650),
        (LARGE, (32, 32, 1), 5, 315_850),
        (SMALL, PAIRS, 5, 68_618),
        (SMALL, (32, 32, 1), 5, 67_018),
        (LARGE, (28, 28, 1), 10, 318_420),
        (MatrixCapsNet(channels=256), (32, 32, 3), 10, 458_900),
        (MatrixCapsNet(pose="vector"), PAIRS, 5, 4_778_730),
        (MatrixCapsNet(activation="mixing"), PAIRS, 5, 316_650 - 2 * (32 + 32 + 5)),
        (ConvNet(), PAIRS, 5, 4_253_349),
    ],
    ids=["large", "large mono", "small", "small mono", "mnist", "cifar10", "vector", "mixing", "cnn"],
)
def test_it_has_as_many_parameters_as_the_papers(architecture, image_shape, num_classes, parameters):
    assert built(architecture, image_shape, num_classes).count_params() == parameters


def test_each_stage_has_the_parameters_of_the_authors_code():
    counts = {name: built(LARGE).get_layer(name).count_params() for name in LARGE.stages}
    assert counts == {
        "conv1": 1_632,
        "primary_capsules": 17_408,
        "conv_capsules1": 147_456 + 64,
        "conv_capsules2": 147_456 + 64,
        "class_capsules": 2_560 + 10,
    }


@pytest.mark.parametrize(("image_shape", "grids"), [(PAIRS, (14, 6, 4)), ((28, 28, 1), (12, 5, 3))])
def test_each_stage_has_the_grid_of_the_papers(image_shape, grids):
    model = built(LARGE, image_shape)
    for stage, side in zip(LARGE.stages[1:], grids, strict=False):
        poses, activations = model.get_layer(stage).output
        assert poses.shape == (None, side, side, 32, 4, 4)
        assert activations.shape == (None, side, side, 32)
    poses, activations = model.get_layer("class_capsules").output
    assert poses.shape == (None, 5, 4, 4)
    assert activations.shape == (None, 5)


@pytest.mark.parametrize(("conv_lambda", "expected"), [(None, 0.02), (0.3, 0.3)])
def test_convolutional_capsules_may_have_an_inverse_temperature_of_their_own(conv_lambda, expected):
    model = dataclasses.replace(TINY, final_lambda=0.02, conv_lambda=conv_lambda).build((24, 24, 1), 5)
    stages = ("conv_capsules1", "conv_capsules2", "class_capsules")
    assert [model.get_layer(stage).routing.final_lambda for stage in stages] == [expected, expected, 0.02]


def test_a_lambda_that_is_not_positive_is_refused_by_its_name():
    with pytest.raises(ValueError, match=r"conv_lambda must be positive or null\. Received: 0\.0"):
        MatrixCapsNet(conv_lambda=0.0)


# The ablations of Table 1


def first_step(architecture):
    """Scores, loss and gradients of a fresh network in the middle of its training."""
    keras.utils.set_random_seed(0)
    model = architecture.build((24, 24, 1), 5)
    objective = architecture.objective(model)
    batch = {"images": drawn(5, (24, 24, 1)), "labels": np.arange(5), "progress": 0.5}
    inputs, targets = objective.arrange(batch)
    with tf.GradientTape() as tape:
        scores = objective.model(inputs, training=True)["scores"]
        loss = objective.losses["scores"](targets["scores"], scores)
    weights = model.trainable_weights
    return scores, loss, dict(zip([w.path for w in weights], tape.gradient(loss, weights), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"variant": "official"}, "scores"),
        ({"coordinates": "official"}, "scores"),
        ({"num_iterations": 1}, "scores"),
        ({"num_iterations": 5}, "scores"),
        ({"pose": "vector"}, "scores"),
        ({"coordinates": "none"}, "scores"),
        ({"activation": "mixing"}, "scores"),
        ({"final_lambda": 0.1}, "scores"),
        ({"conv_lambda": 0.3}, "scores"),
        ({"normalise": True}, "scores"),
        ({"loss": "margin"}, "loss"),
        ({"loss": "cross_entropy"}, "loss"),
        ({"margin": "sigmoid"}, "loss"),
        ({"loss_scaling": "official"}, "loss"),
    ],
    ids=str,
)
def test_every_option_changes_what_it_names_and_leaves_gradients_to_every_weight(changes, what, default_step):
    scores, loss, gradients = first_step(dataclasses.replace(TINY, **changes))
    for path, gradient in gradients.items():
        assert np.all(np.isfinite(gradient)), path
        assert np.any(gradient != 0), path
    same_scores = scores.shape == default_step[0].shape and np.abs(scores - default_step[0]).max() < 1e-7
    assert same_scores == (what != "scores")
    assert abs(loss - default_step[1]) > (1e-3 if what == "loss" else 0)


@pytest.fixture(scope="module")
def default_step():
    return first_step(TINY)


@pytest.mark.parametrize(
    ("changes", "first", "entries"),
    [
        ({}, -0.075, (3, 7)),
        ({"pose": "vector"}, -0.075, (0, 1)),
        ({"coordinates": "official"}, -0.08, (1, 0)),
    ],
)
def test_coordinates_are_pixels_by_a_hundred(changes, first, entries):
    layer = built(dataclasses.replace(TINY, **changes)).get_layer("class_capsules")
    expected = first + 0.04 * np.arange(4)
    np.testing.assert_allclose(layer.coordinates, [expected, expected], atol=1e-9)
    assert layer.entries == entries


def test_normalised_it_is_as_large_as_the_network_of_variational_bayes_routing():
    normalised = dataclasses.replace(SMALL, normalise=True)
    assert trainable_parameters(built(normalised)) == 68_618 - 64 + 2 * 64 + 2 * (8 + 8) == 68_714


@pytest.mark.parametrize("pose", ["matrix", "vector"])
def test_normalised_poses_of_each_type_have_mean_0_and_variance_1(pose):
    model = built(dataclasses.replace(TINY, pose=pose, normalise=True))
    stages = keras.Model(
        model.input,
        [model.get_layer("primary_capsules").output[0]]
        + [model.get_layer(f"pose_normalisation{i}").output for i in (1, 2)],
    )
    for poses in stages(drawn(), training=True):
        # [B, H, W, types, ...]
        by_type = np.moveaxis(poses, 3, 0).reshape(poses.shape[3], -1)
        np.testing.assert_allclose(by_type.mean(axis=1), 0, atol=1e-4)
        np.testing.assert_allclose(by_type.std(axis=1), 1, atol=0.01)


def test_without_coordinate_addition_class_capsules_get_none():
    assert (
        built(dataclasses.replace(TINY, coordinates="none")).get_layer("class_capsules").coordinates is None
    )


@pytest.mark.parametrize(("variant", "lowest", "highest"), [("paper", 0.4, 0.6), ("official", 0.015, 0.06)])
def test_activations_begin_where_the_authors_betas_put_them(variant, lowest, highest):
    keras.utils.set_random_seed(0)
    model = dataclasses.replace(SMALL, variant=variant).build(PAIRS, 5)
    for stage in ("conv_capsules1", "conv_capsules2"):
        _, activations = keras.Model(model.input, model.get_layer(stage).output)(drawn())
        assert lowest < np.mean(activations) < highest


def test_moving_the_image_by_the_grid_moves_the_capsules():
    # Without an E-step, since through it the border, where children have fewer parents, reaches further inwards.
    model = built(dataclasses.replace(TINY, num_iterations=1))
    observer = keras.Model(model.input, model.get_layer("conv_capsules1").output)
    wide = drawn(1, (40, 40, 2))
    # Four pixels are one position.
    for here, moved in zip(observer(wide[:, :32, :32]), observer(wide[:, 4:36, :32]), strict=True):
        np.testing.assert_allclose(moved[:, 1:4, 1:5], here[:, 2:5, 1:5], rtol=1e-3, atol=1e-5)


# Losses


@pytest.mark.parametrize("scaling", ["paper", "official"])
@pytest.mark.parametrize("margin", [0.2, 0.55, 0.9, 1.0])
def test_spread_loss_agrees_with_the_oracle(margin, scaling):
    activations = np.random.default_rng(0).uniform(size=(7, 5)).astype("float32")
    labels = np.arange(7) % 5
    loss = SpreadLoss(scaling)(margin * np.eye(5, dtype="float32")[labels], activations)
    np.testing.assert_allclose(loss, oracle.spread_loss(activations, labels, margin, scaling), rtol=1e-6)


def test_spread_loss_is_zero_where_every_wrong_class_is_below_the_margin():
    activations = np.array([[0.9, 0.35, 0.1]], "float32")
    targets = np.array([[0.5, 0, 0]], "float32")
    assert SpreadLoss()(targets, activations) == 0
    assert SpreadLoss()(1.2 * targets, activations) > 0


def test_the_linear_margin_is_that_of_the_paper_over_any_run():
    for step in (0, 250, 1000):
        assert spread_margin(step / 1000) == pytest.approx(oracle.linear_margin(step, 1000))


def test_the_sigmoid_margin_is_that_of_the_authors_over_their_700_000_steps():
    for step in (0, 200_000, 500_000, 700_000):
        assert spread_margin(step / 700_000, "sigmoid") == pytest.approx(oracle.official_margin(step))
    assert spread_margin(0, "sigmoid") == pytest.approx(0.2142, abs=1e-4)
    assert spread_margin(2 / 7, "sigmoid") == pytest.approx(0.595)


def test_another_schedule_is_refused():
    with pytest.raises(ValueError, match=r"schedule must be 'linear' or 'sigmoid'\. Received: 'cosine'"):
        spread_margin(0.5, "cosine")


def test_another_scaling_is_refused():
    with pytest.raises(ValueError, match=r"scaling must be 'paper' or 'official'\. Received: 'mean'"):
        SpreadLoss("mean")


def test_a_training_batch_brings_its_margin_and_any_other_the_last_one():
    objective = TINY.objective(built(TINY))
    batch = {"images": drawn(2), "labels": np.array([3, 0])}
    for more, margin in (({"progress": 0.0}, 0.2), ({"progress": 0.5}, 0.55), ({}, 0.9)):
        inputs, targets = objective.arrange({**batch, **more})
        assert list(inputs) == ["images"]
        np.testing.assert_allclose(targets["scores"], margin * np.eye(5)[[3, 0]], rtol=1e-6)


def test_accuracy_does_not_depend_on_the_margin():
    objective = TINY.objective(built(TINY))
    (metric,) = objective.metrics["scores"]
    scores = np.array([[0.1, 0.5, 0.2, 0.3, 0.4], [0.5, 0.6, 0.1, 0.1, 0.1]], "float32")
    for progress in (0.0, 1.0):
        batch = {"images": drawn(2), "labels": np.array([1, 0]), "progress": progress}
        np.testing.assert_array_equal(metric(objective.arrange(batch)[1]["scores"], scores), [1, 0])


def test_activation_cross_entropy_is_that_of_a_softmax_over_logits():
    logits = np.random.default_rng(0).normal(size=(4, 5)) * 2
    labels = np.arange(4)
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(4), labels]
    loss = ActivationCrossEntropy()(np.eye(5)[labels], (1 / (1 + np.exp(-logits))).astype("float32"))
    np.testing.assert_allclose(loss, expected.mean(), rtol=1e-4)
    ends = np.array([[0.0, 1.0, 0.0, 1.0, 0.5]], "float32")
    assert np.isfinite(ActivationCrossEntropy()(np.eye(5, dtype="float32")[:1], ends))


def test_the_margin_loss_is_that_of_dynamic_routing():
    architecture = dataclasses.replace(TINY, loss="margin", loss_scaling="official")
    objective = architecture.objective(built(architecture))
    assert isinstance(objective.losses["scores"], MarginLoss)
    assert objective.losses["scores"].scaling == "official"
    targets = objective.arrange({"images": drawn(1), "labels": np.array([2]), "progress": 0.1})[1]
    np.testing.assert_array_equal(targets["scores"], [[0, 0, 1, 0, 0]])


@pytest.mark.parametrize("architecture", [TINY, dataclasses.replace(TINY, loss="cross_entropy"), ConvNet()])
def test_several_labels_per_image_are_refused(architecture):
    with pytest.raises(ValueError, match=r"one label per image\. Received: 2"):
        architecture.objective(built(architecture), labels_per_image=2)


# Training and numbers


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"final_lambda": 0.1}, {"variant": "official"}, {"final_lambda": 0.1, "normalise": True}],
    ids=str,
)
def test_one_batch_can_be_learnt_by_heart(changes):
    keras.utils.set_random_seed(0)
    architecture = dataclasses.replace(TINY, **changes)
    objective = architecture.objective(architecture.build((24, 24, 1), 5))
    batch = {"images": drawn(10, (24, 24, 1)), "labels": np.arange(10) % 5, "progress": 0.0}
    inputs, targets = objective.arrange(batch)
    objective.compile(keras.optimizers.Adam(0.01, global_clipnorm=10.0), batch)
    first = last = objective.model.train_on_batch(inputs, targets, return_dict=True)["loss"]
    for _ in range(199):
        if last < 0.1 * first:
            break
        objective.model.reset_metrics()
        last = objective.model.train_on_batch(inputs, targets, return_dict=True)["loss"]
    assert last < 0.1 * first


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["paper", "official"])
def test_constant_images_have_finite_outputs_and_gradients(variant):
    model = built(dataclasses.replace(TINY, variant=variant), (24, 24, 1))
    for grey in (0.0, 1.0, -3.0):
        with tf.GradientTape() as tape:
            scores = model(np.full((2, 24, 24, 1), grey, "float32"))["scores"]
            loss = SpreadLoss()(np.eye(5, dtype="float32")[:2], scores)
        for array in arrays([scores, loss, tape.gradient(loss, model.trainable_weights)]):
            assert np.all(np.isfinite(array)), grey


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16"])
def test_mixed_precision_leaves_routing_and_outputs_in_float32(policy):
    with dtype_policy(policy):
        model = fill(TINY.build(PAIRS, 5))
    assert model.get_layer("conv1").compute_dtype == policy.removeprefix("mixed_")
    for layer in model.layers:
        if isinstance(layer, ConvCapsules):
            assert layer.routing.compute_dtype == "float32"
    outputs = model(drawn())
    assert {tensor.dtype for tensor in outputs.values()} == {tf.float32}
    assert_nearer_than_other_rows(outputs, fill(TINY.build(PAIRS, 5))(drawn()), 0.4)


def test_more_iterations_can_be_served_than_were_trained():
    model = built(TINY)
    below = keras.Model(model.input, model.get_layer("class_capsules").input)(drawn())
    layer = model.get_layer("class_capsules")
    again = layer(below, num_iterations=tf.constant(3))
    np.testing.assert_allclose(again[1], layer(below)[1], rtol=1e-5)
    assert np.abs(layer(below, num_iterations=tf.constant(1))[1] - again[1]).max() > 0


# Leaving Python


@pytest.fixture(scope="module")
def small():
    keras.utils.set_random_seed(0)
    return SMALL.build(PAIRS, 5)


def test_saved_and_loaded_it_gives_identical_outputs(small, tmp_path):
    small.save(tmp_path / "small.keras")
    loaded = keras.models.load_model(tmp_path / "small.keras", safe_mode=True)
    assert [weight.path for weight in loaded.weights] == [weight.path for weight in small.weights]
    keras.tree.map_structure(np.testing.assert_array_equal, loaded(drawn()), small(drawn()))


@pytest.mark.slow
def test_saved_model_and_litert_agree_with_it(small, tmp_path):
    expected = small(drawn())
    small.export(tmp_path / "small", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "small")
    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "small"))
    runner = Interpreter(model_content=converter.convert()).get_signature_runner("serving_default")
    (name,) = runner.get_input_details()
    for outputs in (loaded.serve(drawn()), runner(**{name: drawn()})):
        for name, tensor in expected.items():
            np.testing.assert_allclose(outputs[name], tensor, atol=1e-5)


def test_a_model_for_images_below_17_pixels_is_refused():
    assert TINY.build((17, 19, 1), 5).output["scores"].shape == (None, 5)
    with pytest.raises(ValueError, match="an image of 16 pixels is too small"):
        TINY.build((32, 16, 1), 5)


# The baseline


def test_the_baselines_scores_are_a_softmax_over_its_logits():
    model = built(ConvNet(channels=(4, 8), hidden=16))
    outputs = model(drawn())
    assert outputs["logits"].shape == (6, 5)
    np.testing.assert_allclose(outputs["scores"], tf.nn.softmax(outputs["logits"]), rtol=1e-6)
    np.testing.assert_allclose(np.sum(outputs["scores"], axis=1), 1, rtol=1e-6)


def test_the_baseline_drops_hidden_units_in_training_only():
    model = built(ConvNet(channels=(4, 8), hidden=16))
    images = drawn()
    np.testing.assert_array_equal(model(images)["scores"], model(images)["scores"])
    assert np.abs(model(images, training=True)["scores"] - model(images)["scores"]).max() > 0


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_an_impossible_dropout_is_refused(rate):
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\)\. Received"):
        ConvNet(dropout=rate)


def test_a_baseline_for_images_below_4_pixels_is_refused():
    with pytest.raises(ValueError, match=r"at least 4x4\. Received: \(3, 8, 1\)"):
        ConvNet().build((3, 8, 1), 5)
