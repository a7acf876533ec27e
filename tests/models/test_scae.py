"""Stacked capsule autoencoders: what they are trained on, what each half learns from, how large they are."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles import stacked_capsules as oracle
from oracles.probabilistic_capsules import sigmoid
from support import assert_same_state, fill, states_of_whole_and_killed
from tiny import STACKED

from capszoo.exporting import export
from capszoo.models import StackedCapsuleAutoencoder
from capszoo.models.architecture import Classifies, Reconstructs
from capszoo.models.network import trainable_parameters
from capszoo.zoo.recipes import parse_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")

NET = StackedCapsuleAutoencoder(**STACKED, classes=5)
SHAPE = (24, 26, 1)
IMAGES = np.random.default_rng(0).random((4, *SHAPE), dtype="float32")


@pytest.fixture
def model():
    return fill(NET.build(SHAPE), scale=0.2)


def losses_of(net, model, training):
    """The terms of the loss of the images, by name."""
    objective = net.objective(model)
    inputs, targets = objective.arrange({"images": IMAGES})
    outputs = objective.model(inputs, training=training)
    return {name: loss(targets[name], outputs[name]) for name, loss in objective.losses.items()}


def test_it_has_the_parameters_of_the_authors_script():
    # By hand: convolutions 1,280 and 3 x 147,584, places 3,200, numbers of parts 128 x 40 x 24 + 40 x 23, templates
    # and alphas 9,680, colours 544 + 33, background 2; embedding 2,320, sets 3 x 2,208, encoding 4,352, seeds 8,192 +
    # 4 x 256 x 256 + 3 x 256; objects 32 x (256 x 128 + 128 + 128 x 32 + 32 + 32 x 128 + 128 + 128 x 327), static
    # offsets 7,680 and biases 32 x (6 + 1 + 40 + 40).
    assert trainable_parameters(StackedCapsuleAutoencoder().build((40, 40, 1))) == 3_535_483


def test_it_reconstructs_and_does_not_classify():
    assert NET.has(Reconstructs)
    assert not NET.has(Classifies)


def test_its_loss_is_that_of_the_paper(model):
    layers = {name: model.get_layer(name) for name in ("renderer", "part_capsules", "object_capsules")}
    observed = {name: layer.output for name, layer in layers.items()}
    values = keras.Model(model.input, {**observed, **model.output})(IMAGES)
    values = keras.tree.map_structure(lambda tensor: np.asarray(tensor, "float64"), values)
    weights = {
        weight.path.split("/", 1)[1]: np.asarray(weight, "float64") for weight in layers["renderer"].weights
    }
    poses, presence, logits, features = values["part_capsules"]
    _, _, _, votes, log_presences, widths, offsets = values["object_capsules"]
    hidden = np.maximum(0, features @ weights["colour_hidden/kernel"] + weights["colour_hidden/bias"])
    colours = sigmoid(hidden @ weights["colour/kernel"] + weights["colour/bias"])[..., 0]
    background = sigmoid(weights["background"]), oracle.softplus(weights["background_alpha"])
    templates, alphas = sigmoid(weights["templates"][..., 0]), weights["alphas"][..., 0]
    expected, explained = dict.fromkeys(("image_density", "part_density", "offsets"), 0.0), []
    for b in range(len(IMAGES)):
        log_presence = np.log(sigmoid(logits[b]))
        pixels, _ = oracle.pixels_given_parts(
            IMAGES[b, ..., 0].astype("float64"),
            poses[b],
            log_presence,
            templates,
            alphas,
            colours[b],
            background,
            1.0,
        )
        parts, owners = oracle.parts_given_objects(
            poses[b], presence[b], votes[b], log_presences[b], widths[b]
        )
        explained.append(owners[:, 1:].sum(axis=0))
        expected["image_density"] -= pixels.sum() / len(IMAGES)
        expected["part_density"] -= parts.sum() / len(IMAGES)
        expected["offsets"] += 10 / 2 * np.sum(offsets[b] ** 2) / len(IMAGES)
    # a_k is in every log(a_k a_km), and the largest a_km makes the presence.
    within, between = oracle.prior_sparsity(np.exp(log_presences.max(axis=-1)), 5)
    expected["presence"] = 2 * within + 0.35 * between
    within, between = oracle.posterior_sparsity(np.array(explained))
    expected["explained"] = 0.7 * within - 0.2 * between
    terms = losses_of(NET, model, training=False)
    assert set(terms) == set(expected)
    for name, value in expected.items():
        assert float(terms[name]) == pytest.approx(value, rel=1e-3, abs=1e-4), name


def test_objects_change_parts_through_their_features_alone(model):
    """No gradient of the upper autoencoder reaches poses, presences or templates of parts."""
    with tf.GradientTape(persistent=True) as tape:
        terms = losses_of(NET, model, training=True)
        upper = sum(value for name, value in terms.items() if name != "image_density")
    numbers = model.get_layer("part_numbers")
    kernel = np.asarray(tape.gradient(upper, numbers.kernel)).reshape(-1, NET.parts, 7 + NET.features)
    bias = np.asarray(tape.gradient(upper, numbers.bias))
    for gradient in (kernel, bias):
        np.testing.assert_array_equal(gradient[..., :6], 0, err_msg="poses")
        np.testing.assert_array_equal(gradient[..., -1], 0, err_msg="presences")
        assert np.all(np.any(gradient[..., 6:-1] != 0, axis=tuple(range(gradient.ndim - 2))))
    assert tape.gradient(upper, model.get_layer("renderer").trainable_weights) == [None] * 8
    lower = np.asarray(tape.gradient(terms["image_density"], numbers.bias))
    assert np.all(lower[:, [0, 1, 2, 3, 4, 5, -1]] != 0)


def test_pictures_do_not_change_objects(model):
    with tf.GradientTape() as tape:
        density = losses_of(NET, model, training=True)["image_density"]
    names = ("embedding", "set1", "encoding", "seeds", "object_hidden", "vote_numbers", "object_capsules")
    weights = [weight for name in names for weight in model.get_layer(name).trainable_weights]
    assert set(map(type, tape.gradient(density, weights))) == {type(None)}


def test_parts_may_be_learnt_alone_and_give_what_they_are_to_the_whole(model):
    parts = dataclasses.replace(NET, learns="parts")
    alone = parts.build(SHAPE)
    assert [weight.path for weight in alone.weights] == [weight.path for weight in model.weights]
    alone.set_weights(model.get_weights())
    (term,) = losses_of(parts, alone, training=False).items()
    assert term == ("image_density", losses_of(NET, model, training=False)["image_density"])


def test_pictures_begin_darker_than_those_of_digits():
    """What begins brighter than images ends in templates that are black all over."""
    keras.utils.set_random_seed(0)
    begun = StackedCapsuleAutoencoder().build((40, 40, 1)).predict(np.zeros((1, 40, 40, 1)), verbose=0)
    assert 0.02 < begun["reconstruction"].mean() < 0.1


def test_noise_is_drawn_in_training_only(model):
    calm = [losses_of(NET, model, training=False) for _ in range(2)]
    noisy = [losses_of(NET, model, training=True) for _ in range(2)]
    for name in ("image_density", "part_density", "presence"):
        assert float(calm[0][name]) == float(calm[1][name])
        assert abs(float(noisy[0][name]) - float(noisy[1][name])) > 1e-4, name
    quiet = dataclasses.replace(NET, noise=0.0)
    without = quiet.build(SHAPE)
    without.set_weights(model.get_weights()[: len(without.weights)])
    trained = losses_of(quiet, without, training=True)
    assert float(trained["part_density"]) == pytest.approx(float(calm[0]["part_density"]), rel=1e-5)


def test_what_it_says_of_owners_and_presences_fits_together(model):
    outputs = {name: np.asarray(tensor, "float64") for name, tensor in model(IMAGES).items()}
    np.testing.assert_allclose(outputs["coefficients"].sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(
        outputs["explained"], outputs["coefficients"][..., 1:].mean(axis=1), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(outputs["presence"], sigmoid(outputs["logits"]), rtol=1e-4)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("parts", 0, "parts must be at least 1. Received: 0"),
        ("classes", 0, "classes must be at least 1. Received: 0"),
        ("noise", -1.0, "noise must be at least 0. Received: -1.0"),
        ("pixel_deviation", 0.0, "pixel_deviation must be positive. Received: 0.0"),
    ],
)
def test_illegal_options_are_refused(option, value, message):
    with pytest.raises(ValueError, match=message):
        StackedCapsuleAutoencoder(**{**STACKED, option: value})


def test_images_too_small_for_its_convolutions_are_refused():
    with pytest.raises(ValueError, match="images must be at least 23x23"):
        NET.build((28, 22, 1))
    assert NET.build((23, 23, 1)).get_layer("conv4").output.shape[1:3] == (1, 1)


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_same_bits(tmp_path):
    mapping = {
        "model": {"name": "scae", **STACKED},
        "data": {"name": "mnist", "validation": 50},
        "train": {"epochs": 2, "batch_size": 25, "checkpoint_steps": 4},
    }
    expected, killed = states_of_whole_and_killed(parse_recipe("tiny", mapping), tmp_path)
    assert any(name.startswith(("random/", "training/")) for name in expected)
    assert_same_state(killed, expected)


@pytest.mark.slow
def test_exported_it_says_the_same_without_capszoo(model, tmp_path):
    report = export(model, tmp_path, name="tiny", version=1, stages=NET.stages)
    deviations = dict(report["deviations"])
    deviations.pop("litert-float16")
    assert max(value for outputs in deviations.values() for value in outputs.values()) < 1e-5
