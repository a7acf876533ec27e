"""Attacks do what their formulas say; on a linear classifier the result is known in closed form."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from support import numeric_gradient

from capszoo.models import MatrixCapsNet, Objective
from capszoo.protocols.attacks import bim, fgsm, loss_gradient

SHAPE, CLASSES = (3, 2, 2), 4
ATTACKS = [fgsm, bim]


def linear(activation, classes=CLASSES, scale=1.0):
    """A classifier with one dense layer, its weights `[pixels, classes]` and biases; names as in the zoo."""
    images = keras.Input(SHAPE, name="images")
    logits = keras.layers.Dense(classes, name="logits")(keras.layers.Flatten()(images))
    layer = {
        "softmax": keras.layers.Softmax,
        "sigmoid": lambda name: keras.layers.Activation("sigmoid", name=name),
    }
    model = keras.Model(images, {"scores": layer[activation](name="scores")(logits)})
    rng = np.random.default_rng(3)
    weights, biases = scale * rng.normal(size=(12, classes)), rng.normal(size=classes)
    model.get_layer("logits").set_weights([weights, biases])
    return model, weights, biases


@pytest.fixture
def batch():
    """Images `[8, 3, 2, 2]` and labels `[8]`."""
    rng = np.random.default_rng(5)
    return rng.normal(size=(8, *SHAPE)).astype("float32"), np.arange(8) % CLASSES


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class Scripted:
    """A gradient that is the same everywhere, with a sign for each call; and the images that it was asked at."""

    def __init__(self, *signs):
        self.signs, self.asked = signs, []

    def __call__(self, images, labels):
        self.asked.append(np.array(images))
        return np.full_like(images, self.signs[(len(self.asked) - 1) % len(self.signs)])


# Gradients


def test_the_gradient_of_a_softmaxs_cross_entropy_is_weights_times_probability_less_one_hot(batch):
    model, weights, biases = linear("softmax")
    images, labels = batch
    probabilities = softmax(images.reshape(8, -1) @ weights + biases)
    expected = ((probabilities - np.eye(CLASSES)[labels]) @ weights.T).reshape(images.shape)
    np.testing.assert_allclose(loss_gradient(model, None)(images, labels), expected, rtol=1e-4, atol=1e-6)


def test_a_softmax_that_is_sure_of_itself_still_has_the_right_gradient(batch):
    """Where its probability rounds to 1, the plain formula gives zero or another direction."""
    model, weights, biases = linear("softmax", scale=9)
    images, _ = batch
    scores = softmax(images.reshape(len(images), -1).astype("float64") @ weights + biases)
    # In float64: whether a float32 softmax gives 1 or the number below it depends on the machine.
    sure = scores.max(axis=-1) > 1 - 2.0**-25
    assert sure.sum() >= 3
    images, labels = images[sure], scores[sure].argmax(axis=-1)
    logits = images.reshape(len(images), -1).astype("float64") @ weights + biases
    others = np.where(np.eye(CLASSES)[labels], -np.inf, logits)
    gap = np.log(np.exp(others).sum(axis=-1)) - logits[range(len(labels)), labels]
    expected = np.exp(gap)[:, None] * ((softmax(others) - np.eye(CLASSES)[labels]) @ weights.T)
    received = loss_gradient(model, None)(images, labels).reshape(len(images), -1)
    np.testing.assert_allclose(received, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).min())


def test_the_probability_of_a_capsule_is_its_share_of_all_activations(batch):
    model, weights, biases = linear("sigmoid")
    images, labels = batch
    gradient = loss_gradient(model, None)(images, labels)
    for image, label, received in zip(images, labels, gradient, strict=True):

        def loss(x, label=label):
            activations = 1 / (1 + np.exp(-(x.reshape(-1) @ weights + biases)))
            return -np.log(activations[label] / activations.sum())

        np.testing.assert_allclose(received, numeric_gradient(loss, image), rtol=1e-3, atol=1e-5)


def test_capsules_that_are_all_silent_give_a_finite_gradient(batch):
    model, weights, biases = linear("sigmoid")
    model.get_layer("logits").set_weights([weights, biases - 300])
    assert np.isfinite(loss_gradient(model, None)(*batch)).all()


@pytest.mark.parametrize("scaling", ["paper", "official"])
def test_the_objective_is_what_the_recipe_trains_on_with_the_last_margin(batch, scaling):
    model, weights, biases = linear("sigmoid", scale=0.3)
    images, labels = batch
    gradient = loss_gradient(model, MatrixCapsNet(loss_scaling=scaling), "objective")(images, labels)
    for image, label, received in zip(images, labels, gradient, strict=True):

        def spread(x, label=label):
            activations = 1 / (1 + np.exp(-(x.reshape(-1) @ weights + biases)))
            terms = np.maximum(0, 0.9 - (activations[label] - activations)) ** 2
            return (terms.sum() - terms[label]) / (CLASSES if scaling == "official" else 1)

        np.testing.assert_allclose(received, numeric_gradient(spread, image), rtol=1e-3, atol=1e-5)


def test_an_objective_that_has_the_image_as_its_target_changes_with_it(batch):
    """As that of a decoder: of sum (x - x / 4)^2 the derivative is 2 (3 / 4)^2 x, not that of a fixed target."""
    images = keras.Input(SHAPE, name="images")
    model = keras.Model(images, {"reconstruction": keras.layers.Rescaling(0.25)(images)})
    objective = Objective(
        model=model,
        losses={"reconstruction": keras.losses.MeanSquaredError()},
        metrics={},
        arrange=lambda batch: ({"images": batch["images"]}, {"reconstruction": batch["images"]}),
    )
    recipe = SimpleNamespace(objective=lambda model: objective)
    received = loss_gradient(model, recipe, "objective")(*batch)
    np.testing.assert_allclose(received, 2 * 0.75**2 * batch[0] / SHAPE[-1], rtol=1e-5)


def test_a_spread_loss_that_has_what_it_wants_gives_an_attack_nothing(batch):
    model, weights, _ = linear("sigmoid", scale=0.01)
    model.get_layer("logits").set_weights([weights, np.array([-9.0, 9.0, -9.0, -9.0])])
    images, content = batch[0], np.ones(8, int)
    objective, entropy = (
        loss_gradient(model, MatrixCapsNet(), loss) for loss in ("objective", "cross_entropy")
    )
    assert (objective(images, content) == 0).all()
    assert (entropy(images, content) != 0).all()


def test_each_image_has_its_own_gradient_whatever_else_is_in_the_batch(recipe):
    chosen = recipe("tiny_cnn")  # has dropout, which must be off
    model = chosen.build()
    images = np.random.default_rng(0).normal(size=(5, 18, 18, 2)).astype("float32")
    for loss in ("cross_entropy", "objective"):
        gradient = loss_gradient(model, chosen, loss)
        whole = gradient(images, np.arange(5))
        np.testing.assert_allclose(gradient(images[3:4], np.array([3]))[0], whole[3], rtol=1e-4, atol=1e-7)


def test_an_unknown_loss_and_another_backend_are_refused(monkeypatch):
    model, *_ = linear("softmax")
    with pytest.raises(ValueError, match=r"cross_entropy, objective\. Received: 'hinge'"):
        loss_gradient(model, None, "hinge")
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="Received: jax"):
        loss_gradient(model, None)


# Attacks


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("targeted", [False, True])
def test_on_two_classes_each_attack_moves_every_pixel_by_epsilon_along_the_weights(batch, attack, targeted):
    """So the margin between the classes changes by epsilon times the sum of the weights' absolute differences."""
    model, weights, _ = linear("softmax", classes=2)
    images, labels = batch[0], batch[1] % 2
    towards = labels if targeted else 1 - labels
    difference = (weights[:, towards] - weights[:, 1 - towards]).T
    gradient = loss_gradient(model, None)
    for epsilon, changed in zip(
        (0.1, 0.7), attack(gradient, images, labels, (0.1, 0.7), targeted=targeted), strict=True
    ):
        expected = images + epsilon * np.sign(difference).reshape(images.shape)
        np.testing.assert_allclose(changed, expected, atol=1e-6)
        margins = [np.sum(difference * x.reshape(8, -1), axis=-1) for x in (images, changed)]
        np.testing.assert_allclose(margins[1] - margins[0], epsilon * np.abs(difference).sum(-1), rtol=1e-5)


def test_fgsm_on_many_classes_is_one_step_along_the_sign_of_the_closed_form(batch):
    model, weights, biases = linear("softmax")
    images, labels = batch
    probabilities = softmax(images.reshape(8, -1) @ weights + biases)
    sign = np.sign((probabilities - np.eye(CLASSES)[labels]) @ weights.T).reshape(images.shape)
    away = list(fgsm(loss_gradient(model, None), images, labels, (0.3, 1.0)))
    towards = list(fgsm(loss_gradient(model, None), images, labels, (0.3, 1.0), targeted=True))
    for i, epsilon in enumerate((0.3, 1.0)):
        np.testing.assert_allclose(away[i], images + epsilon * sign, atol=1e-6)
        np.testing.assert_allclose(towards[i], images - epsilon * sign, atol=1e-6)


def test_bim_on_many_classes_follows_the_closed_form_step_by_step(batch):
    model, weights, biases = linear("softmax")
    images, labels = np.clip(batch[0], -1, 1.5), batch[1]
    epsilon, x = 0.8, images.astype("float64")
    for _ in range(5):
        probabilities = softmax(x.reshape(8, -1) @ weights + biases)
        sign = np.sign((probabilities - np.eye(CLASSES)[labels]) @ weights.T).reshape(images.shape)
        x = np.clip(np.clip(x + 0.2 * sign, images - epsilon, images + epsilon), -1, 1.5)
    (changed,) = bim(loss_gradient(model, None), images, labels, (epsilon,), low=-1, high=1.5)
    np.testing.assert_allclose(changed, x, atol=1e-5)


def test_bim_takes_steps_of_a_quarter_of_epsilon_from_where_the_last_one_led(batch):
    images, labels = batch
    zigzag = Scripted(1, -1, 1, 1, -1)
    (changed,) = bim(zigzag, images, labels, (0.4,))
    np.testing.assert_allclose(changed, images + 0.1, atol=1e-6)
    for asked, offset in zip(zigzag.asked, (0, 0.1, 0, 0.1, 0.2), strict=True):
        np.testing.assert_allclose(asked, images + offset, atol=1e-6)
    (far,) = bim(Scripted(1), images, labels, (0.4,))
    np.testing.assert_allclose(far, images + 0.4, atol=1e-6)


def test_fgsm_asks_for_the_gradient_once_for_all_epsilons(batch):
    gradient = Scripted(1)
    assert len(list(fgsm(gradient, *batch, (0.1, 0.2, 0.3)))) == 3
    assert len(gradient.asked) == 1


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("targeted", [False, True])
def test_changed_images_are_within_epsilon_and_between_black_and_white(batch, attack, targeted):
    images, labels = batch
    low = images.min(axis=(1, 2, 3), keepdims=True) - np.float32(0.05)
    high = images.max(axis=(1, 2, 3), keepdims=True) + np.float32(0.05)
    gradient = loss_gradient(linear("softmax")[0], None)
    epsilons = (0.02, 0.3)
    for epsilon, changed in zip(
        epsilons, attack(gradient, images, labels, epsilons, low, high, targeted), strict=True
    ):
        assert changed.dtype == np.float32
        assert np.abs(changed - images).max() <= epsilon + 1e-6
        assert (changed >= low).all()
        assert (changed <= high).all()
    assert (changed == low).any()
    assert (changed == high).any()


@pytest.mark.parametrize("attack", ATTACKS)
def test_epsilon_zero_changes_nothing(batch, attack):
    (changed,) = attack(loss_gradient(linear("softmax")[0], None), *batch, (0.0,))
    np.testing.assert_array_equal(changed, batch[0])


@pytest.mark.parametrize("attack", ATTACKS)
def test_where_the_gradient_is_zero_nothing_changes(batch, attack):
    (changed,) = attack(Scripted(0), *batch, (0.5,))
    np.testing.assert_array_equal(changed, batch[0])


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("epsilon", [-0.1, float("nan")])
def test_a_negative_epsilon_is_refused(batch, attack, epsilon):
    with pytest.raises(ValueError, match="at least 0"):
        list(attack(Scripted(1), *batch, (0.1, epsilon)))
