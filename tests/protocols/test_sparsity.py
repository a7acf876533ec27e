"""How many capsules stay long after iterative inference."""

import json

import numpy as np
import pytest
from support import Recorded, fill

from capszoo.config import ConfigError
from capszoo.data import Mnist
from capszoo.protocols import SparsityProtocol, Subject, infer_activities
from capszoo.protocols.sparsity import sparsity_of
from capszoo.visualize import draw_inferred_poses
from capszoo.zoo.recipes import parse_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")

MODEL = {
    "name": "predictive_coding",
    "channels": 4,
    "primary_types": 2,
    "hidden_capsules": 3,
    "decoder": False,
}
CONDITIONS = ["feed-forward", "inference", "inference with L1"]


@pytest.fixture(scope="module")
def subject(data):
    recipe = parse_recipe("tiny", {"model": MODEL, "data": {"name": "mnist", "validation": 50}})
    # Weights large enough for capsules of some length.
    return Subject("tiny", recipe, fill(recipe.build(), scale=0.2), 7)


@pytest.fixture(scope="module")
def report(subject):
    return SparsityProtocol(images=12, steps=400).measure([subject], command="capszoo evaluate tiny")


def poses_of(*lengths):
    """Poses `[1, O, 2]` of the given lengths."""
    return np.array(lengths)[None, :, None] * np.array([0.6, -0.8])


def test_one_long_capsule_is_as_sparse_as_can_be_and_equal_ones_not_at_all():
    assert sparsity_of(poses_of(0, 0, 0.7, 0)).hoyer == pytest.approx(1)
    assert sparsity_of(poses_of(0.5, 0.5, 0.5)).hoyer == pytest.approx(0)
    assert sparsity_of(poses_of(0.0, 0.0, 0.0)).hoyer == 0
    assert sparsity_of(poses_of(0.7)).hoyer == 0
    # (sqrt 4 - 1.4 / sqrt 1) / (sqrt 4 - 1)
    assert sparsity_of(poses_of(0.8, 0.6, 0, 0)).hoyer == pytest.approx(0.6)


def test_capsules_longer_than_a_tenth_are_active():
    assert sparsity_of(poses_of(0.09, 0.11, 0.9, 0.0)).active == 2


def test_the_labelled_capsule_is_compared_with_the_others():
    poses = np.concatenate([poses_of(0.2, 0.9, 0.4), poses_of(0.2, 0.9, 0.4)])
    found = sparsity_of(poses, np.array([1, 2]))
    assert found.labelled_longest == 0.5
    assert found.labelled == pytest.approx((0.9 + 0.4) / 2)
    assert found.others == pytest.approx((0.2 + 0.4 + 0.2 + 0.9) / 4)
    assert sparsity_of(poses).labelled is None
    assert sparsity_of(poses[:, :1], np.array([0, 0])).others is None


def test_a_penalty_makes_class_capsules_sparser_and_shorter(report):
    layer = report.layers["class_capsules"]
    assert list(layer) == CONDITIONS
    assert layer["inference with L1"].hoyer > layer["inference"].hoyer
    assert layer["inference with L1"].largest < layer["inference"].largest


def test_layers_that_are_no_classes_are_measured_without_labels(report):
    assert list(report.layers) == ["hidden_capsules", "class_capsules"]
    assert report.layers["hidden_capsules"]["inference"].labelled is None
    assert report.layers["class_capsules"]["inference"].labelled is not None


def test_inference_without_a_penalty_ends_with_the_least_energy(report):
    assert report.energy["inference"] < report.energy["inference with L1"]
    assert report.energy["inference"] < report.energy["feed-forward"]


@pytest.mark.usefixtures("eagerly")
def test_the_feed_forward_condition_is_the_models_own(subject):
    batch = subject.recipe.data.open("test").batch(np.arange(5), None)
    poses, _ = infer_activities(subject, batch["images"], batch["labels"], steps=3, batch_size=2)
    expected = subject.model(batch["images"])["poses"]
    np.testing.assert_allclose(poses["feed-forward"]["class_capsules"], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("eagerly")
def test_without_labels_and_penalty_nothing_moves(subject):
    report = SparsityProtocol(images=3, steps=5, clamped=False).measure([subject])
    layer = report.layers["class_capsules"]
    assert layer["inference"].largest == pytest.approx(layer["feed-forward"].largest, rel=1e-4)
    assert layer["inference with L1"].largest < layer["inference"].largest


def test_the_report_says_what_was_measured(report):
    written = json.loads(report.to_json())
    assert (written["model"], written["step"], written["n"], written["steps"]) == ("tiny", 7, 12, 400)
    assert written["penalty"] == {"class_capsules": 1.0}
    assert written["command"] == "capszoo evaluate tiny"


@pytest.mark.usefixtures("eagerly")
def test_progress_counts_until_all_is_done(subject):
    progress = Recorded()
    SparsityProtocol(images=3, steps=1).measure([subject], progress=progress)
    assert (progress.begun, progress.counts) == ([("inference", 9, 0)], [3, 3, 3])


def test_a_descent_that_diverges_is_an_error(subject):
    with pytest.raises(ArithmeticError, match=r"Lower the rate of 1e\+30"):
        SparsityProtocol(images=2, steps=50, rate=1e30).measure([subject])


def test_a_descent_that_jumps_over_the_valley_is_an_error(subject):
    # All stays finite, but every step of the norm's slope is longer than the capsules.
    with pytest.raises(
        ArithmeticError, match=r"with L1: the energy rose from \d.* to \d.*Lower the rate of 0\.01"
    ):
        SparsityProtocol(images=2, steps=50, penalty={"class_capsules": 1000.0}).measure([subject])


def test_a_model_that_cannot_infer_is_refused(subject):
    recipe = parse_recipe("x", {"model": {"name": "dynamic", "channels": 4}, "data": {"name": "mnist"}})
    with pytest.raises(
        ConfigError,
        match=r"infers its activities iteratively, such as predictive_coding\. Received: DynamicCapsNet",
    ):
        SparsityProtocol(images=2).measure([Subject("x", recipe, None)])


def test_the_drawing_has_a_panel_for_each_capsule_image_and_condition(data):
    batch = Mnist(validation=50).open("test").batch(np.arange(2), None)
    shown = {condition: np.random.default_rng(0).normal(size=(2, 10, 16)) for condition in CONDITIONS}
    figure = draw_inferred_poses(batch["images"], shown, batch["labels"])
    assert len(figure.axes) == 2 * 3 * (1 + 10)
    label = batch["labels"][0]
    length = np.linalg.norm(shown["feed-forward"][0, label])
    assert figure.axes[1 + label].get_title() == f"{length:.2f}"
    red = [axes.spines["left"].get_edgecolor()[:3] == (1, 0, 0) for axes in figure.axes]
    assert batch["labels"][0] != batch["labels"][1]
    # Rows of eleven panels, three for each image.
    assert np.flatnonzero(red).tolist() == [11 * row + 1 + batch["labels"][row // 3] for row in range(6)]


def test_poses_of_another_number_of_images_are_not_drawn():
    with pytest.raises(ValueError, match=r"poses must be of 2 images\. Received 1"):
        draw_inferred_poses(np.zeros((2, 4, 4, 1)), {"a": np.zeros((1, 3, 2))})
