"""Protocols count as the papers count."""

import numpy as np
import pytest
from support import Recorded

import capszoo
from capszoo.config import ConfigError
from capszoo.models.objective import set_accuracy
from capszoo.progress import QUIET
from capszoo.protocols import Subject, evaluate, get_protocol, protocols, provenance, wilson
from capszoo.protocols.statistics import few_interval, mean_interval
from capszoo.training.scoring import wrong
from capszoo.zoo.recipes import read_recipe


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # From the closed form, solved by hand as the roots of (p - share)^2 = z^2 p (1 - p) / n with z = 1.959964.
    [
        (0, 10, 0.0, 0.277533),
        (5, 10, 0.236593, 0.763407),
        (10, 10, 0.722467, 1.0),
        (25, 10000, 0.001693, 0.003689),
    ],
)
def test_wilson_interval(successes, n, low, high):
    assert wilson(successes, n) == pytest.approx((low, high), abs=2e-6)


@pytest.mark.parametrize("successes", [0, 1, 7, 40, 99, 100])
def test_ends_of_the_interval_are_where_the_score_test_just_rejects(successes):
    share, z = successes / 100, 1.959963984540054
    for end in wilson(successes, 100):
        assert (share - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / 100, abs=1e-12)


@pytest.mark.parametrize(("successes", "n"), [(1, 0), (-1, 3), (4, 3)])
def test_an_impossible_share_has_no_interval(successes, n):
    with pytest.raises(ValueError, match="Received"):
        wilson(successes, n)


def test_the_interval_of_a_mean_is_that_of_its_standard_error():
    # the standard error is sqrt(5 / 3) / 2
    assert mean_interval([1.0, 2.0, 3.0, 4.0]) == pytest.approx(
        (2.5 - 1.96 * 0.6455, 2.5 + 1.96 * 0.6455), abs=1e-3
    )


@pytest.mark.parametrize("interval", [mean_interval, few_interval])
def test_one_value_has_no_interval(interval):
    with pytest.raises(ValueError, match=r"two values.*\(1,\)"):
        interval([1.0])


def test_an_interval_of_few_values_holds_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0).standard_normal((4000, 3))
    held = [low < 0 < high for low, high in map(few_interval, draws)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.01)


def test_an_image_is_wrong_unless_its_class_has_the_highest_score():
    scores = np.array([[0.1, 0.9, 0.3], [0.5, 0.4, 0.6]])
    assert wrong(scores, np.array([1, 0])).tolist() == [False, True]


def test_a_pair_counts_only_when_both_digits_are_right():
    scores = np.array([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8], [0.1, 0.8, 0.9]])
    labels = np.array([[0, 1], [1, 0], [2, 1]])
    assert wrong(scores, labels).tolist() == [False, True, False]


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_a_tie_is_wrong_whichever_class_is_the_images_own(classes):
    scores = np.full((classes, classes), 0.5)
    assert wrong(scores, np.arange(classes)).all()
    assert wrong(scores, np.stack([np.arange(classes), (np.arange(classes) + 1) % classes], 1)).all() == (
        classes > 2
    )


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_score_that_is_no_number_is_wrong_wherever_it_stands(place):
    for label in range(3):
        scores = np.eye(3)[[label]]
        assert not wrong(scores, [label]).any()
        scores[0, place] = np.nan
        assert wrong(scores, [label]).all()
    assert wrong(np.full((3, 3), np.nan), np.arange(3)).all()


def test_training_counts_ties_and_what_is_no_number_as_evaluation_does():
    scores = np.array(
        [[0.5, 0.5, 0.1], [np.nan, 0.9, 0.1], [0.9, np.nan, 0.1], [0.9, 0.1, 0.2], [0.9, 0.1, np.nan]]
    )
    right = np.asarray(set_accuracy(np.eye(3)[[0, 1, 0, 0, 0]], scores.astype("float32")))
    assert right.tolist() == [0, 0, 0, 1, 0]
    assert (~wrong(scores, [0, 1, 0, 0, 0])).tolist() == right.tolist()


def test_every_protocol_says_what_it_measures():
    for protocol in protocols().values():
        assert len(protocol.__doc__) > 20


def test_a_measurement_names_its_data(zoo):
    model = capszoo.load("tiny_mnist")
    progress = Recorded()
    result = evaluate(model, progress=progress)
    assert (result.data, result.split, result.n) == ("mnist", "test", 100)
    assert result.fingerprint == model.preset.recipe.data.open("test").fingerprint()
    assert result.wrong == round(result.value * result.n)
    assert (progress.begun, sum(progress.counts)) == ([("test_error", 100, 0)], 100)


def test_a_model_without_a_recipe_of_its_own_needs_one():
    with pytest.raises(ValueError, match=r"recipe must be given .* Received: None"):
        evaluate(object())


def test_names_where_a_model_or_a_recipe_is_needed():
    with pytest.raises(TypeError, match=r"a model is needed, e\.g\. capszoo\.load\('tiny_mnist'\)"):
        evaluate("tiny_mnist")
    with pytest.raises(TypeError, match=r"a protocol's name is protocol=\. Received: 'svm'"):
        evaluate(object(), "svm")


@pytest.mark.parametrize("protocol", ["attack", "likelihood_comparison"])
def test_models_of_one_name_are_not_compared(zoo, protocol):
    subject = Subject("tiny", capszoo.load("tiny_mnist").preset.recipe, None)
    with pytest.raises(ConfigError, match=r"a name of its own\. Received: tiny, tiny"):
        get_protocol(protocol).measured([subject, subject], "", QUIET)


@pytest.mark.parametrize("names", ["abcdefghij", "9876543210", "abc"])
def test_classes_of_ones_own_are_not_measured_as_those_of_the_preset(zoo, names):
    model = capszoo.load("tiny_mnist", class_names=list(names))
    with pytest.raises(ConfigError, match=f"a model of {len(names)}, {', '.join(names)} instead of 0, 1,"):
        evaluate(model)


def test_a_measurement_names_the_code_before_it(zoo, monkeypatch):
    """What is committed while hours of measuring run is not what measures."""
    read = []

    class Model:
        def predict_on_batch(self, images):
            assert read, "the revision"
            return {"scores": np.zeros((len(images), 10), "float32")}

    monkeypatch.setattr(provenance, "revision", lambda: read.append(1) or "0.1.0 abc")
    assert evaluate(Model(), capszoo.load("tiny_mnist").preset.recipe).revision == "0.1.0 abc"


def test_images_of_another_shape_are_refused(zoo):
    model = capszoo.load("tiny_mnist")
    with pytest.raises(ConfigError, match=r"\(40, 40, 1\), the model takes \(28, 28, 1\)"):
        evaluate(model, model.preset.recipe, "affnist_synth")


def test_affine_digits_are_measured_on_a_net_for_40x40(zoo):
    model = capszoo.create("tiny_mnist", overrides=["data.pad=6", "data.shift=6"])
    result = evaluate(model, model.preset.recipe, "affnist_synth")
    assert (result.data, result.n) == ("affnist_synth", 100)
    assert evaluate(model, model.preset.recipe, "expanded_mnist").n == 100


def test_pairs_are_measured_on_a_net_for_multimnist(zoo):
    model = capszoo.create("tiny_mnist", overrides=["data.name=multimnist"])
    assert evaluate(model, model.preset.recipe, "multimnist").n == 100


def test_data_of_another_benchmark_have_no_number_of_the_paper():
    override = ["data.name=fashion_mnist"]
    assert read_recipe("dynamic_mnist").card.protocols["test_error"] == 0.0025
    assert read_recipe("dynamic_mnist", override).card.protocols["test_error"] is None
    assert read_recipe("cnn_smallnorb", ["data.name=synthnorb"]).card.protocols["test_error"] == 0.052
    model = capszoo.create("dynamic_mnist", overrides=override)
    assert model.preset.recipe.card.protocols["test_error"] is None


def test_a_model_of_other_classes_is_not_measured_on_digits():
    recipe = read_recipe("dynamic_mnist_expanded", ["data.name=fashion_mnist"])
    with pytest.raises(ConfigError, match=r"has the classes 0, 1, .* Received: a model of T-shirt"):
        evaluate(None, recipe, "expanded_mnist")
