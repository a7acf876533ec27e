"""The unsupervised network: sizes, outputs, what is decoded, its state, its exports."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from capszoo.config import ConfigError, parse_section
from capszoo.data.preprocessing import Preprocessing
from capszoo.exporting.convert_litert_script import convert
from capszoo.exporting.saved_model import Signatures
from capszoo.losses import ReconstructionLoss
from capszoo.models import SparseCapsNet, UnmaskedCapsNet
from capszoo.training.weight_files import load_weights, save_weights

SMALL = SparseCapsNet(channels=8, primary_types=3, latent_capsules=6, latent_dim=5)
STATE = ("boosts", "frequencies", "batches")


def drawn(count=12, seed=0):
    """Bright boxes anywhere in 20x20 images."""
    rng = np.random.default_rng(seed)
    images = np.zeros((count, 20, 20, 1), "float32")
    for image in images:
        top, left = rng.integers(0, 12, size=2)
        image[top : top + 8, left : left + 5] = rng.uniform(0.5, 1)
    return images


def built(architecture=SMALL):
    keras.utils.set_random_seed(0)
    return architecture.build((20, 20, 1))


def compiled(model, architecture=SMALL):
    objective = architecture.objective(model)
    objective.compile(keras.optimizers.Adam(3e-3), {"images": drawn()})
    return objective


def learn(objective, steps):
    for step in range(steps):
        objective.model.train_on_batch(*objective.arrange({"images": drawn(seed=step)}))


def state_of(model):
    mask = model.get_layer("sparse_mask")
    return {name: keras.ops.convert_to_numpy(getattr(mask, name)) for name in STATE}


@pytest.fixture(scope="module")
def model():
    """A network after 60 steps: capsules were boosted once. Leave its weights."""
    made = built()
    learn(compiled(made), 60)
    return made


# Sizes


def test_a_mask_adds_boosts_frequencies_and_a_count_that_are_not_trained():
    paths = [weight.path for weight in built().non_trainable_weights]
    assert paths == [f"sparse_mask/{name}" for name in STATE]
    assert built(dataclasses.replace(SMALL, gamma=0.0)).non_trainable_weights == []


# Outputs


def test_what_is_decoded_is_poses_times_presence(model):
    outputs = model(drawn())
    masked = np.asarray(outputs["poses"]) * np.asarray(outputs["presence"])[..., None]
    decoded = model.get_layer("decoder")(masked.reshape(len(masked), 1, -1))
    np.testing.assert_allclose(outputs["reconstruction"], decoded[:, 0], rtol=1e-5, atol=1e-6)
    assert len(np.unique(np.asarray(outputs["presence"]), axis=0)) > 1


def test_presence_is_largest_where_boosted_support_is(model):
    outputs = {name: np.asarray(value) for name, value in model(drawn()).items()}
    boosted = outputs["scores"] * state_of(model)["boosts"]
    np.testing.assert_array_equal(outputs["presence"].argmax(-1), boosted.argmax(-1))
    assert (outputs["presence"].max(-1) == 1).all()


def test_a_dense_network_lets_all_capsules_pass():
    outputs = built(UnmaskedCapsNet(channels=8, primary_types=3, latent_capsules=6))(drawn())
    np.testing.assert_array_equal(outputs["presence"], np.ones((12, 6)))


def test_the_loss_is_the_squared_error_summed_over_pixels(model):
    objective = compiled(model)
    images = drawn()
    reconstruction = np.asarray(model(images)["reconstruction"])
    (loss,) = objective.losses.values()
    expected = ((images - reconstruction) ** 2).sum(axis=(1, 2, 3)).mean()
    np.testing.assert_allclose(loss(images, reconstruction), expected, rtol=1e-5)
    again = ReconstructionLoss.from_config(loss.get_config())
    np.testing.assert_allclose(again(images, reconstruction), expected, rtol=1e-5)


def test_labels_play_no_part(model):
    batch = {"images": drawn(), "labels": np.arange(12)}
    inputs, targets = SMALL.objective(model).arrange(batch)
    assert set(inputs) == {"images"}
    np.testing.assert_array_equal(targets["reconstruction"], batch["images"])


# State


def test_training_counts_batches_and_boosts_after_50(model):
    state = state_of(model)
    assert state["batches"] == 60
    np.testing.assert_allclose(state["frequencies"].sum(), 1, rtol=1e-5)
    seldom = state["frequencies"] < 0.03
    assert seldom.any()
    assert (state["boosts"][seldom] == np.float32(1.1)).all()


def test_inference_changes_no_state(model):
    before = state_of(model)
    objective = compiled(model)
    images = drawn()
    model.predict(images, verbose=0)
    model.predict_on_batch(images)
    model(images)
    objective.model.test_on_batch(*objective.arrange({"images": images}))
    for name, value in state_of(model).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_the_state_is_saved_with_the_weights_and_decides_again(model, tmp_path):
    save_weights(model, tmp_path / "weights.safetensors")
    keras.utils.set_random_seed(1)
    other = SMALL.build((20, 20, 1))
    load_weights(other, tmp_path / "weights.safetensors")
    for name, value in state_of(other).items():
        np.testing.assert_array_equal(value, state_of(model)[name], err_msg=name)
    for name, value in other(drawn()).items():
        np.testing.assert_array_equal(value, model(drawn())[name], err_msg=name)
    # Without it another capsule would win.
    other.get_layer("sparse_mask").boosts.assign([1, 1, 1, 9, 1, 1])
    assert (np.asarray(other(drawn())["presence"]).argmax(-1) == 3).all()


# Exports


@pytest.mark.slow
def test_exported_it_agrees_with_the_model_and_does_not_learn(model, tmp_path):
    images = drawn(3)
    expected = {name: np.asarray(value) for name, value in model(images).items()}
    signatures = Signatures(model, Preprocessing(), (20, 20, 1), SMALL.stages)
    signatures.write(tmp_path / "saved")
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures
    for _ in range(2):
        np.testing.assert_array_equal(
            served["features"](images=tf.constant(images))["sparse_mask"], expected["presence"]
        )
    signatures.write_unchecked(tmp_path / "unchecked")
    lite = Interpreter(model_content=convert(str(tmp_path / "unchecked"), half=False))
    for run in (served["serving_default"], lite.get_signature_runner("serving_default")):
        outputs = run(images=tf.constant(images)) if run is served["serving_default"] else run(images=images)
        for name in ("scores", "poses"):
            np.testing.assert_allclose(outputs[name], expected[name], atol=1e-5, err_msg=name)


# Options


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"gamma": -1.0}, r"gamma must be at least 0\. Received: -1"),
        ({"boost_step": -0.1}, r"boost_step must be at least 0\. Received: -0\.1"),
        ({"frequencies": [0.3, 0.1]}, "ascending"),
        ({"support": "papre"}, r"'papre' is not allowed; did you mean 'paper'\?"),
        ({"latent_capsules": 1}, r"latent_capsules must be at least 2\. Received: 1"),
        ({"channels": 0}, r"channels must be at least 1\. Received: 0"),
    ],
)
def test_an_option_that_cannot_be_is_refused(option, message):
    with pytest.raises(ConfigError, match=message):
        parse_section("model", {"name": "sparse", **option})


def test_images_too_small_for_two_windows_are_refused():
    with pytest.raises(ValueError, match="at least 17x17"):
        SMALL.build((16, 28, 1))


def test_the_recipes_step_is_that_of_the_mask():
    model = SparseCapsNet(channels=4, primary_types=2, boost_step=0.03).build((20, 20, 1))
    assert model.get_layer("sparse_mask").boost_step == 0.03
