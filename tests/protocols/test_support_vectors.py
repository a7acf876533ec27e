"""A machine on poses: fitted here, tested there, and never on a digit that it has seen."""

import numpy as np
import pytest
from support import Recorded

from capszoo.config import ConfigError
from capszoo.data import Affnist, AffnistSynth, affnist
from capszoo.data.pipeline import evaluation_batches
from capszoo.data.split import ArraySplit
from capszoo.protocols import evaluate, get_protocol
from capszoo.protocols.fitted_classifier import FittedData, Rows
from capszoo.protocols.support_vectors import DividedDigits, divide
from capszoo.zoo.recipes import parse_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")

NAMES = (
    "svm",
    "svm_affnist",
    "svm_affnist_synth",
    "svm_transfer_affnist",
    "svm_transfer_affnist_synth",
)


class Pixels:
    """A network that sees little: its four poses are sums over quarters of the image; two of them are masked."""

    def predict_on_batch(self, images):
        quarters = images.reshape(len(images), 4, -1).astype("float64")
        poses = np.stack([quarters.sum(-1), (quarters**2).sum(-1)], axis=-1)
        return {"poses": poses, "presence": np.tile([1.0, 0.5, 0, 0], (len(images), 1))}


class Bars:
    """A network whose poses are the pixels themselves, coarsely."""

    def predict_on_batch(self, images):
        side = images.shape[1] // 4
        coarse = images.reshape(len(images), 4, side, 4, side).mean(axis=(2, 4))
        return {"poses": coarse}


def recipe_of(name="sparse", pad=0):
    model = {"name": name, "channels": 4, "primary_types": 2}
    return parse_recipe(
        f"{name}_mnist", {"model": model, "data": {"name": "mnist", "validation": 50, "pad": pad}}
    )


def all_of(split, key="images"):
    return np.concatenate([batch[key] for batch in evaluation_batches(split, 64)])


# Which images


@pytest.mark.parametrize("order", ["transform-major", "digit-major"])
def test_every_seventh_digit_is_tested_with_seven_images_and_the_others_are_for_fitting(order):
    digits, images = 30, 9
    digit = np.arange(digits * images)
    digit = digit % digits if order == "transform-major" else digit // images
    tested, fitted = divide(digit)
    assert set(digit[tested]) == {6, 13, 20, 27}
    assert set(digit[fitted]) == set(range(30)) - {6, 13, 20, 27}
    for rows in (tested, fitted):
        assert (np.diff(rows) > 0).all()
        assert set(np.unique(digit[rows], return_counts=True)[1]) == {7}


def test_affine_digits_are_tested_on_other_base_digits_than_those_fitted():
    split = DividedDigits(AffnistSynth(transforms=7)).open("test")
    whole = AffnistSynth(transforms=7).open("test")
    assert (len(split), len(split.fitting)) == (14 * 7, 86 * 7)
    digits = np.arange(700) % 100
    assert not set(digits[split.rows]) & set(digits[split.fitting.rows])
    expected = whole.batch(split.rows[:5], None)
    for key, value in split.batch(np.arange(5), None).items():
        np.testing.assert_array_equal(value, expected[key])


def affnist_of(monkeypatch, labels):
    """A small affNIST test set with these labels."""
    monkeypatch.setattr(affnist, "DIGITS", dict.fromkeys(affnist.DIGITS, 14))
    monkeypatch.setattr(Affnist, "_paths", lambda self, split: ["test.mat"])
    images = np.zeros((len(labels), 40, 40, 1), np.uint8)
    monkeypatch.setattr(affnist, "_read_mat", lambda path: (images, np.asarray(labels)))


def test_digits_of_affnist_are_known_from_its_order(monkeypatch):
    affnist_of(monkeypatch, np.repeat(np.arange(14) % 10, 32))
    split = DividedDigits(Affnist()).open("test")
    assert set(split.rows // 32) == {6, 13}
    assert len(split.fitting) == 12 * 7


def test_an_affnist_whose_order_is_unknown_cannot_be_divided(monkeypatch):
    affnist_of(monkeypatch, np.random.default_rng(0).permutation(np.repeat(np.arange(14) % 10, 32)))
    with pytest.raises(ConfigError, match="which rows are of the same digit"):
        DividedDigits(Affnist()).open("test")


def test_a_transferred_machine_is_fitted_to_unaugmented_training_images_and_tested_on_the_same_rows():
    recipe = recipe_of(pad=6)
    own = get_protocol("svm_affnist_synth").data(recipe).open("test")
    transferred = get_protocol("svm_transfer_affnist_synth").data(recipe).open("test")
    np.testing.assert_array_equal(transferred.rows, own.rows)
    train = recipe.data.open("train")
    np.testing.assert_array_equal(all_of(transferred.fitting), train.images / np.float32(255))
    assert transferred.fingerprint() != own.fingerprint()


def test_what_is_fitted_and_what_is_tested_are_in_the_fingerprint():
    images = np.zeros((6, 4, 4, 1), np.uint8)
    split, other = (ArraySplit(images, np.arange(6) + i) for i in (0, 1))
    rows = np.array([0, 2])
    reference = Rows(split, rows, other).fingerprint()
    assert Rows(split, rows, other).fingerprint() == reference
    for changed in (Rows(other, rows, other), Rows(split, rows + 1, other), Rows(split, rows, split)):
        assert changed.fingerprint() != reference


# Features and machine


def test_features_are_all_numbers_of_all_poses_in_order():
    split = recipe_of().data.open("test")
    features, labels = get_protocol("svm").features(Pixels(), split)
    outputs = Pixels().predict_on_batch(all_of(split))
    np.testing.assert_allclose(features, outputs["poses"].reshape(100, 8))
    np.testing.assert_array_equal(labels, all_of(split, "labels"))
    masked, _ = get_protocol("masked_svm").features(Pixels(), split)
    np.testing.assert_allclose(masked, features * [1, 1, 0.5, 0.5, 0, 0, 0, 0])


def test_the_machine_learns_classes_from_poses():
    split = FittedData(*[recipe_of().data] * 2).open("test")
    scores, labels = get_protocol("svm").predict(Bars(), split)
    assert (scores.argmax(-1) == labels).mean() > 0.9
    np.testing.assert_array_equal(scores.sum(-1), np.ones(100))


def test_its_constants_are_those_of_the_authors():
    from sklearn.svm import SVC

    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(80, 3)), rng.integers(0, 3, 80)
    split = ArraySplit(np.zeros((80, 1, 1, 1), np.uint8), labels)

    class Points:
        def predict_on_batch(self, images):
            return {"poses": points[: len(images), None]}

    scores, _ = get_protocol("svm").predict(Points(), Rows(split, np.arange(80), split))
    expected = SVC(C=100, gamma=0.1, kernel="rbf").fit(points, labels).predict(points)
    np.testing.assert_array_equal(scores.argmax(-1), expected)
    # Other constants would have separated these points otherwise.
    assert not np.array_equal(expected, SVC(C=1, gamma=0.1).fit(points, labels).predict(points))
    assert not np.array_equal(expected, SVC(C=100, gamma=0.3).fit(points, labels).predict(points))


def test_a_masked_machine_sees_less():
    split = FittedData(*[recipe_of().data] * 2).open("test")
    plain, masked = (get_protocol(name).predict(Pixels(), split)[0] for name in ("svm", "masked_svm"))
    assert not np.array_equal(plain, masked)


# As protocols


@pytest.mark.parametrize("name", [*NAMES, *(f"masked_{name}" for name in NAMES)])
def test_it_is_a_protocol_of_this_name(name):
    recipe = recipe_of(pad=6)
    assert isinstance(get_protocol(name).data(recipe), FittedData)


def test_a_measurement_names_data_and_machine_and_the_papers_number():
    progress = Recorded()
    result = evaluate(Bars(), recipe_of(), "svm", progress=progress)
    assert (result.metric, result.data, result.n) == ("SVM test error", "mnist", 100)
    assert result.value < 0.1
    assert result.paper is None
    assert (progress.begun, sum(progress.counts)) == ([("svm", 100, 0)], 100)


def test_affine_digits_need_a_network_of_their_size():
    with pytest.raises(ConfigError, match=r"\(40, 40, 1\), the model takes \(28, 28, 1\)"):
        evaluate(Bars(), recipe_of(), "svm_affnist_synth")


def test_a_network_without_classes_has_no_test_error():
    with pytest.raises(
        ConfigError, match=r"needs an architecture that classifies, .*\. Received: SparseCapsNet"
    ):
        evaluate(Bars(), recipe_of(), "test_error")


def test_a_mask_is_needed_for_masked_poses():
    with pytest.raises(ConfigError, match="'presence'"):
        evaluate(Bars(), recipe_of("dynamic"), "masked_svm")
