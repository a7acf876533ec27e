"""Dreams: turned capsules are drawn as a turned picture, and the inference network learns to recognise them."""

import keras
import numpy as np
import pytest
from oracles import probabilistic_capsules as oracle
from support import fill
from tiny import PROBABILISTIC as TINY

from capszoo.models import ProbabilisticCapsNet
from capszoo.models.dreams import DreamSurprise, TurnedCapsules

NET = ProbabilisticCapsNet(**TINY, dreams=1.0)
RNG = np.random.default_rng(0)
IMAGES = RNG.random((6, 12, 12, 1), dtype="float32")
PARTS = RNG.normal(oracle.IDENTITY, 0.5, (5, 4, 2, 3)).astype("float32")
OBJECTS = RNG.normal(0, 0.5, (5, 3, 2, 3)).astype("float32")


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    model = NET.build((12, 12, 1))
    fill(model, scale=0.2)
    return model


@pytest.mark.parametrize("max_angle", [30.0, 180.0])
def test_all_capsules_of_an_image_are_turned_by_one_angle(max_angle):
    keras.utils.set_random_seed(0)
    parts, objects = map(np.asarray, TurnedCapsules(max_angle)(PARTS, OBJECTS, training=True))
    angles = []
    for image in range(len(PARTS)):
        turn = oracle.square(parts[image, 0]) @ np.linalg.inv(oracle.square(PARTS[image, 0]))
        np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-4)
        assert np.linalg.det(turn) == pytest.approx(1, abs=1e-4)
        angles.append(np.degrees(np.arctan2(turn[1, 0], turn[0, 0])))
        for part, turned in zip(PARTS[image], parts[image], strict=True):
            np.testing.assert_allclose(oracle.square(turned), turn @ oracle.square(part), atol=1e-4)
        for pose, turned in zip(OBJECTS[image], objects[image], strict=True):
            expected = turn[:2] @ oracle.square(pose + oracle.IDENTITY)
            np.testing.assert_allclose(turned + oracle.IDENTITY, expected, atol=1e-4)
    assert np.ptp(angles) > max_angle / 4
    assert np.abs(angles).max() <= max_angle


def test_outside_training_nothing_is_turned():
    for turned, still in zip(TurnedCapsules()(PARTS, OBJECTS), (PARTS, OBJECTS), strict=True):
        np.testing.assert_array_equal(turned, still)


def test_turned_parts_are_drawn_as_a_turned_picture(model, monkeypatch):
    monkeypatch.setattr(keras.random, "uniform", lambda shape, *_, **__: np.full(shape, np.pi / 2, "float32"))
    turned, _ = TurnedCapsules()(PARTS, OBJECTS, training=True)
    renderer, presence = model.get_layer("renderer"), np.ones(PARTS.shape[:2], "float32")
    upright, dream = (np.asarray(renderer(parts, presence)) for parts in (PARTS, turned))
    assert upright.std() > 0.01
    turns = [np.abs(dream - np.rot90(upright, k, axes=(1, 2))).max() for k in (1, -1)]
    assert min(turns) < 1e-4 < max(turns)


def variables(seed):
    rng = np.random.default_rng(seed)
    shapes = ((5, 4, 2, 3), (5, 4), (5, 3, 2, 3), (5, 3))
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def test_the_surprise_is_its_equation():
    dreamt, inferred = variables(1), variables(2)
    surprise = np.asarray(DreamSurprise()(dreamt, inferred))
    for image, terms in enumerate(surprise):
        poses, logits, objects, object_logits = (variable[image].astype("float64") for variable in dreamt)
        found = [variable[image].astype("float64") for variable in inferred]
        presences, found_presences = oracle.sigmoid(logits), oracle.sigmoid(found[1])
        expected = [0.0] * 4
        for part in range(4):
            expected[0] += presences[part] * np.sum((found[0][part] - poses[part]) ** 2) / 2
            expected[1] -= presences[part] * np.log(found_presences[part])
            expected[1] -= (1 - presences[part]) * np.log(1 - found_presences[part])
        for number in range(3):
            presence = oracle.sigmoid(object_logits[number])
            expected[2] += presence * np.sum((found[2][number] - objects[number]) ** 2) / (2 * 0.3**2)
            expected[3] += (found[3][number] - object_logits[number]) ** 2 / (2 * 0.5**2)
        np.testing.assert_allclose(terms, expected, rtol=1e-4)


def test_a_dream_that_is_recognised_costs_only_the_entropy_of_its_parts():
    dreamt = variables(1)
    presence = oracle.sigmoid(dreamt[1].astype("float64"))
    entropy = -(presence * np.log(presence) + (1 - presence) * np.log(1 - presence)).sum(axis=-1)
    expected = np.stack([0 * entropy, entropy, 0 * entropy, 0 * entropy], axis=-1)
    np.testing.assert_allclose(DreamSurprise()(dreamt, dreamt), expected, rtol=1e-4)


def test_only_the_inference_network_learns_by_dreams(model):
    import tensorflow as tf

    objective = NET.objective(model)
    with tf.GradientTape() as tape:
        dreams = objective.model({"images": IMAGES}, training=True)["dreams"]
        surprise = tf.reduce_sum(dreams)
    assert dreams.shape == (len(IMAGES), 4)
    gradients = tape.gradient(surprise, model.trainable_variables)
    learning = {
        v.path.partition("/")[0]
        for v, gradient in zip(model.trainable_variables, gradients, strict=True)
        if gradient is not None and np.any(gradient)
    }
    assert not learning & {"renderer", "selection"}
    assert {"conv1", "part_parameters", "embedding", "object_poses", "object_logits"} <= learning


def test_dreams_are_learnt_to_be_recognised(model):
    objective = NET.objective(model)
    objective.model.compile(keras.optimizers.Adam(3e-3), loss=objective.losses)
    inputs, targets = objective.arrange({"images": IMAGES})
    surprises = [
        objective.model.train_on_batch(inputs, targets, return_dict=True)["dreams_loss"] for _ in range(60)
    ]
    assert np.mean(surprises[-10:]) < 0.7 * np.mean(surprises[:10])


def test_without_a_weight_there_are_no_dreams(model):
    assert "dreams" not in ProbabilisticCapsNet(**TINY).objective(model).losses


@pytest.mark.parametrize("option", ["dreams", "dream_angle"])
def test_negative_options_are_refused(option):
    with pytest.raises(ValueError, match=f"{option} must not be negative. Received: -1"):
        ProbabilisticCapsNet(**{**TINY, option: -1.0})
