"""The sleep phase: the inference network learns to infer turned capsules from drawings of them."""

import keras
import numpy as np
import pytest
from oracles import probabilistic_capsules as oracle
from support import assert_same_state, fill, states_of_whole_and_killed
from tiny import PROBABILISTIC as TINY

from capszoo.config import ConfigError
from capszoo.models import ProbabilisticCapsNet
from capszoo.models.probabilistic.sleep_phase import CapsuleMatchingLoss, SleepSamples
from capszoo.training.weight_files import save_weights
from capszoo.zoo.recipes import parse_recipe

NET = ProbabilisticCapsNet(**TINY, learns="sleep")
IMAGES = np.random.default_rng(0).random((6, 12, 12, 1), dtype="float32")


def network(net=NET):
    keras.utils.set_random_seed(0)
    model = net.build((12, 12, 1))
    fill(model, scale=0.2)
    return model


@pytest.fixture
def model():
    return network()


@pytest.mark.parametrize("max_angle", [30.0, 180.0])
def test_all_capsules_of_an_image_are_turned_by_one_angle(model, max_angle):
    awake, _, turned = SleepSamples(model, max_angle)(IMAGES, training=True)
    (parts, _, objects, _), (turned_parts, _, turned_objects, _) = (
        [np.asarray(variable, "float64") for variable in middle] for middle in (awake, turned)
    )
    angles = []
    for image in range(len(IMAGES)):
        first = oracle.square(parts[image, 0])
        turn = oracle.square(turned_parts[image, 0]) @ np.linalg.inv(first)
        np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-4)
        assert np.linalg.det(turn) == pytest.approx(1, abs=1e-4)
        angles.append(np.degrees(np.arctan2(turn[1, 0], turn[0, 0])))
        for part, found in zip(parts[image], turned_parts[image], strict=True):
            np.testing.assert_allclose(oracle.square(found), turn @ oracle.square(part), atol=1e-4)
        for pose, found in zip(objects[image], turned_objects[image], strict=True):
            expected = turn[:2] @ oracle.square(pose + oracle.IDENTITY)
            np.testing.assert_allclose(found + oracle.IDENTITY, expected, atol=1e-4)
    assert np.ptp(angles) > max_angle / 4
    assert np.abs(angles).max() <= max_angle + 1e-3


def test_presences_are_not_changed_by_turning(model):
    awake, _, turned = SleepSamples(model)(IMAGES, training=True)
    for place in (1, 3):
        np.testing.assert_array_equal(awake[place], turned[place])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_what_is_inferred_awake_is_the_networks_output_without_noise(temperature):
    model = network(ProbabilisticCapsNet(**TINY, temperature=temperature))
    (parts, _, objects, logits), _, _ = SleepSamples(model)(IMAGES, training=True)
    expected = model(IMAGES)
    for found, name in ((parts, "part_poses"), (objects, "poses"), (logits, "logits")):
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_outside_training_the_generated_image_is_the_reconstruction(temperature):
    model = network(ProbabilisticCapsNet(**TINY, temperature=temperature))
    _, generated, _ = SleepSamples(model)(IMAGES)
    np.testing.assert_allclose(generated, model(IMAGES)["reconstruction"], atol=1e-6)


def test_turned_capsules_are_drawn_as_a_turned_picture(model, monkeypatch):
    still = SleepSamples(model)(IMAGES)[1]
    monkeypatch.setattr(keras.random, "uniform", lambda shape, *_, **__: np.full(shape, np.pi / 2, "float32"))
    generated = np.asarray(SleepSamples(model)(IMAGES, training=True)[1])
    assert np.std(still) > 0.01
    differences = [np.abs(generated - np.rot90(still, k, axes=(1, 2))).max() for k in (1, -1)]
    assert min(differences) < 1e-4 < max(differences)


def variables(seed):
    rng = np.random.default_rng(seed)
    shapes = ((5, 4, 2, 3), (5, 4), (5, 3, 2, 3), (5, 3))
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def test_the_loss_is_its_equation():
    wanted, inferred = variables(1), variables(2)
    loss = np.asarray(CapsuleMatchingLoss(0.2)(wanted, inferred))
    for image, terms in enumerate(loss):
        poses, logits, objects, object_logits = (variable[image].astype("float64") for variable in wanted)
        found = [variable[image].astype("float64") for variable in inferred]
        presences, found_presences = oracle.sigmoid(logits), oracle.sigmoid(found[1])
        expected = [0.0] * 4
        for part in range(4):
            expected[0] += presences[part] * np.sum((found[0][part] - poses[part]) ** 2) / (2 * 0.2**2)
            expected[1] -= presences[part] * np.log(found_presences[part])
            expected[1] -= (1 - presences[part]) * np.log(1 - found_presences[part])
        for number in range(3):
            presence = oracle.sigmoid(object_logits[number])
            expected[2] += presence * np.sum((found[2][number] - objects[number]) ** 2) / (2 * 0.3**2)
            expected[3] += (found[3][number] - object_logits[number]) ** 2 / (2 * 0.5**2)
        np.testing.assert_allclose(terms, expected, rtol=1e-4)


def test_only_the_inference_network_learns(model):
    objective = NET.objective(model)
    layers = {weight.path.partition("/")[0] for weight in objective.model.trainable_weights}
    assert not layers & {"renderer", "selection"}
    assert {"conv1", "part_parameters", "embedding", "object_poses", "object_logits"} <= layers
    own = {id(weight) for weight in model.weights}
    assert {id(weight) for weight in objective.model.trainable_weights} <= own


@pytest.mark.slow
def test_what_was_inferred_awake_is_learnt_to_be_recognised_turned():
    model = network()
    objective = NET.objective(model)
    objective.begin(None, [])
    before = model(IMAGES)
    objective.compile(keras.optimizers.Adam(3e-3), {"images": IMAGES})
    inputs, targets = objective.arrange({"images": IMAGES})
    losses = [objective.model.train_on_batch(inputs, targets, return_dict=True) for _ in range(80)]
    sleep = [logs["sleep_loss"] for logs in losses]
    assert np.mean(sleep[-10:]) < 0.8 * np.mean(sleep[:10])
    # The generator is as it was, though the model has changed.
    generator = objective.model.get_layer("samples").generator
    np.testing.assert_allclose(generator(IMAGES)["logits"], before["logits"], rtol=1e-5)
    assert np.abs(model(IMAGES)["logits"] - before["logits"]).max() > 1e-3


def test_a_network_that_has_learnt_nothing_has_no_sleep_phase(model):
    fresh = ["conv1/kernel", "conv1/bias"]
    with pytest.raises(ConfigError, match=r"train.start_from. Random are conv1/kernel and 1 other weights"):
        NET.objective(model).begin(None, fresh)


def test_deviations_would_be_left_behind():
    with pytest.raises(ValueError, match=r"learns='sleep' needs posterior='delta'. Received: 'gaussian'"):
        ProbabilisticCapsNet(**TINY, learns="sleep", posterior="gaussian")


@pytest.mark.parametrize("angle", [-1.0, 181.0])
def test_angles_out_of_range_are_refused(angle):
    with pytest.raises(ValueError, match=f"sleep_angle must be from 0 to 180. Received: {angle}"):
        ProbabilisticCapsNet(**TINY, sleep_angle=angle)


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_a_killed_run_goes_on_with_the_network_that_it_began_with(tmp_path):
    start = tmp_path / "start.safetensors"
    save_weights(NET.build((28, 28, 1)), start)
    mapping = {
        "model": {"name": "probabilistic", **TINY, "learns": "sleep"},
        "data": {"name": "mnist", "validation": 50},
        "train": {"epochs": 2, "batch_size": 25, "checkpoint_steps": 4, "start_from": str(start)},
    }
    recipe = parse_recipe("tiny", mapping)
    expected, killed = states_of_whole_and_killed(recipe, tmp_path)
    assert_same_state(killed, expected)
