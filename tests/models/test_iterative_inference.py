"""Iterative inference finds activities of lower energy between an image and its label."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from oracles import predictive_coding as oracle
from support import fill

from capszoo.data.checking import ImageError
from capszoo.models import IterativeInference, PredictiveCodingCapsNet, toy_network
from capszoo.models.predictive_coding.iterative_inference import descend, gradient

LABELS = np.eye(3, dtype="float32")[[0, 2, 1, 1]]
EPSILON = 1e-7

# By 500 steps: (output only, penalty) -> hidden activities. The sign gradient of L1 jitters by the rate.
TOY = {
    (True, None): (-2.3333, 3.6667, 0.6667),
    (True, "l1"): (0.0, 1.5, 0.0),
    (True, "l2"): (0.5, 0.5, 0.5),
    (False, None): (-2.0, 4.0, 1.0),
    (False, "l1"): (-0.75, 3.25, 0.25),
    (False, "l2"): (-0.3333, 1.6667, 0.6667),
}


@pytest.fixture(scope="module")
def architecture():
    return PredictiveCodingCapsNet(channels=6, primary_types=2, hidden_capsules=4, decoder=False)


@pytest.fixture(scope="module")
def model(architecture):
    keras.utils.set_random_seed(0)
    return fill(architecture.build((20, 20, 1), 3), scale=0.2)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).uniform(size=(4, 20, 20, 1)).astype("float32")


def lengths(activities, layer="class_capsules"):
    return np.linalg.norm(activities[layer], axis=-1)


@pytest.mark.parametrize(("setting", "expected"), TOY.items(), ids=str)
def test_the_toy_network_ends_where_the_paper_says(setting, expected):
    tolerance = 0.02 if setting[1] == "l1" else 1e-3
    np.testing.assert_allclose(toy_network(*setting), expected, atol=tolerance)
    np.testing.assert_allclose(toy_network(*setting), oracle.toy_network(*setting), atol=tolerance)


def test_only_the_penalty_makes_one_object_of_the_toy_network_explain_everything():
    active = {penalty: (np.abs(toy_network(penalty=penalty)) > 0.1).sum() for penalty in (None, "l1", "l2")}
    assert active == {None: 3, "l1": 1, "l2": 3}


def test_another_penalty_of_the_toy_network_is_refused():
    with pytest.raises(ValueError, match=r"None, 'l1' or 'l2'\. Received: 'l3'"):
        toy_network(penalty="l3")


@pytest.mark.parametrize("output", ["predicted", "free"])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_step_follows_the_gradient_of_the_oracle(architecture, model, images, output, labelled):
    """One image at a time, from activities that agree with nothing."""
    rate, eta = 0.1, 0.7
    infer = architecture.inference(model, steps=1, rate=rate, sparsity={"class_capsules": eta}, output=output)
    names = ["primary_capsules", "hidden_capsules", "class_capsules"]
    kernels = [np.asarray(model.get_layer(name).kernel, "float64") for name in names[1:]]
    start = {name: np.asarray(value) for name, value in infer.start(images).items()}
    rng = np.random.default_rng(1)
    start = {
        name: value + 0.1 * rng.normal(size=value.shape).astype("float32") for name, value in start.items()
    }
    states = {name: tf.constant(value) for name, value in start.items() if name in infer.free}
    labels = LABELS if labelled else None
    first = infer.start(images, 1)["conv1"]
    energy = lambda states: tf.reduce_sum(infer._energies(first, states, labels))  # noqa: E731
    slopes = gradient(energy, states)
    after = descend(energy, states, 1, rate)
    energies = infer.energies(images, states, labels)
    below = model.get_layer("primary_capsules")(start["conv1"])
    for row in range(len(images)):
        x = [np.float64(start[name][row]).reshape(-1, start[name].shape[-1]) for name in names]
        x = x if output == "free" else x[:-1]
        label = LABELS[row] if labelled else None
        # The oracle begins at the primary capsules, the errors beneath are plain squares.
        value, expected = oracle.energy_and_gradients(x, kernels, (1, 1), label, eta, output, EPSILON)
        beneath = np.sum((start["conv1"][row] - first[row]) ** 2)
        beneath += np.sum((start["primary_capsules"][row] - below[row]) ** 2)
        np.testing.assert_allclose(energies[row], value + beneath, rtol=1e-4)
        for name, slope in zip(names[1:], expected, strict=False):
            np.testing.assert_allclose(slopes[name][row], slope, rtol=1e-3, atol=1e-4)
            moved = start[name][row] - rate * slope
            np.testing.assert_allclose(after[name][row], moved, rtol=1e-3, atol=1e-4)


def test_the_gradients_of_the_oracle_are_the_slopes_of_its_energy():
    rng = np.random.default_rng(2)
    weights = [rng.normal(size=(5, 3, 4, 3)), rng.normal(size=(4, 3, 2, 5))]
    for output, shapes in (("predicted", [(5, 3), (4, 3)]), ("free", [(5, 3), (4, 3), (2, 5)])):
        x = [rng.normal(size=shape) for shape in shapes]
        label = np.array([1.0, 0.0])

        def energy(x, output=output, label=label):
            return oracle.energy_and_gradients(x, weights, (0.5, 1), label, 0.3, output, EPSILON)[0]

        _, gradients = oracle.energy_and_gradients(x, weights, (0.5, 1), label, 0.3, output, EPSILON)
        for number, expected in enumerate(gradients, start=1):
            for index in np.ndindex(x[number].shape):
                shifted = [[part.copy() for part in x] for _ in range(2)]
                shifted[0][number][index] += 1e-6
                shifted[1][number][index] -= 1e-6
                slope = (energy(shifted[0]) - energy(shifted[1])) / 2e-6
                np.testing.assert_allclose(expected[index], slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("output", ["predicted", "free"])
def test_inference_lowers_the_energy_of_every_image(architecture, model, images, output):
    plain, infer = (architecture.inference(model, steps=n, output=output) for n in (0, 100))
    before = plain.energies(images, plain(images, LABELS), LABELS)
    after = infer.energies(images, infer(images, LABELS), LABELS)
    assert (np.asarray(after) < np.asarray(before)).all()


def test_without_a_label_and_a_penalty_the_feed_forward_pass_stays(architecture, model, images):
    activities = architecture.inference(model, steps=20)(images)
    outputs = model(images)
    np.testing.assert_allclose(activities["class_capsules"], outputs["poses"], rtol=1e-4, atol=1e-6)


def test_a_penalty_shortens_the_capsules_that_it_names(architecture, model, images):
    def inferred(sparsity, labels=LABELS):
        return architecture.inference(model, steps=200, sparsity=sparsity)(images, labels)

    plain = inferred(None)
    assert lengths(inferred({"class_capsules": 1.0})).sum() < lengths(plain).sum()
    rewarded = inferred({"hidden_capsules": -0.2})
    hidden = "hidden_capsules"
    assert lengths(rewarded, hidden).sum() > lengths(plain, hidden).sum()


def test_a_clamped_label_lengthens_its_capsule(architecture, model, images):
    infer = architecture.inference(model, steps=100)
    before = lengths(infer.start(images))
    after = lengths(infer(images, LABELS))
    assert (after[LABELS == 1] > before[LABELS == 1]).all()


def test_images_do_not_depend_on_each_other(architecture, model, images):
    infer = architecture.inference(model, steps=10, sparsity={"class_capsules": 1.0})
    together, alone = infer(images, LABELS), infer(images[1:2], LABELS[1:2])
    for name, value in alone.items():
        np.testing.assert_allclose(value[0], together[name][1], rtol=1e-4, atol=1e-5)


def test_it_takes_what_the_model_takes(architecture, model, images):
    infer = architecture.inference(model, steps=2)
    levels = np.round(np.asarray(images) * 255).astype("uint8")
    of_levels, of_floats = (
        infer(levels, LABELS.astype("int64")),
        infer(levels / np.float32(255), LABELS.tolist()),
    )
    for name, value in of_floats.items():
        np.testing.assert_allclose(of_levels[name], value, rtol=1e-5, atol=1e-6)
    with pytest.raises(ImageError, match="images must have the shape"):
        infer(images[:, :5], LABELS)
    with pytest.raises(ValueError, match=r"labels must be one-hot rows \[B, 3\]. Received: \(4,\)"):
        infer(images, np.zeros(4))
    with pytest.raises(ValueError, match=r"labels must be one-hot rows \[B, 3\]. Received: \(4, 1\)"):
        infer.energies(images, infer.start(images), np.zeros((4, 1)))


@pytest.mark.slow
def test_it_can_be_exported(architecture, model, images, tmp_path):
    infer = architecture.inference(model, steps=5, sparsity={"class_capsules": 1.0})
    archive = keras.export.ExportArchive()
    signature = [tf.TensorSpec((None, 20, 20, 1), tf.float32), tf.TensorSpec((None, 3), tf.float32)]
    archive.add_endpoint("infer", infer.__call__, signature)
    archive.write_out(str(tmp_path / "inference"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "inference"))
    served = loaded.infer(images, LABELS)
    np.testing.assert_allclose(
        served["class_capsules"], infer(images, LABELS)["class_capsules"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "clamped"}, r"'free' or 'predicted'\. Received: 'clamped'"),
        ({"sparsity": {"conv1": 1.0}}, r"stages of capsules, of \['primary_capsules'.* Received: 'conv1'"),
        ({"sparsity": {"digits": 1.0}}, "Received: 'digits'"),
    ],
)
def test_options_that_mean_nothing_are_refused(architecture, model, options, message):
    with pytest.raises(ValueError, match=message):
        architecture.inference(model, **options)


def test_one_stage_is_nothing_to_infer(model):
    with pytest.raises(ValueError, match="at least two stages"):
        IterativeInference(model, ("class_capsules",))


@pytest.mark.parametrize("name", ["hidden_capsules", "hidden_dim"])
def test_impossible_numbers_of_capsules_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        PredictiveCodingCapsNet(**{name: -1})


@pytest.mark.parametrize(
    ("options", "parameters"), [({}, 8_215_568), ({"decoder": False}, 6_804_224)], ids=["decoder", "none"]
)
def test_it_has_the_parameters_of_the_paper_without_its_idle_prior(options, parameters):
    assert PredictiveCodingCapsNet(**options).build((28, 28, 1), 10).count_params() == parameters
