"""What is published holds: weights load and behave, pictures are read, bundles agree, numbers can be measured again."""

import dataclasses
import functools
import warnings
from pathlib import Path

import numpy as np
import pytest

import capszoo
from capszoo.config import ConfigError
from capszoo.data import samples
from capszoo.data.mnist import Mnist
from capszoo.data.sources import DataNotFound
from capszoo.exporting import verify
from capszoo.models.architecture import Classifies
from capszoo.models.network import trainable_parameters
from capszoo.protocols import evaluate
from capszoo.zoo import locating, recipes
from capszoo.zoo.card import read_card

ROOT = Path(__file__).parents[2]
PUBLISHED = capszoo.list_models(pretrained=True)
BUNDLES = [
    # One is reloaded in every run of the tests; what it says is checked in a process of its own.
    pytest.param(path, marks=() if path.parent.name == "efficient_mnist" else pytest.mark.slow)
    for path in sorted((ROOT / "export" / "models").glob("*/[0-9]*"))
]


@functools.cache
def _load(name):
    # A stand-in for the data in the name warns, as it should.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return capszoo.load(name)


def test_there_are_published_presets():
    assert "dynamic_mnist" in PUBLISHED


@pytest.mark.parametrize("name", recipes.names())
def test_presets_are_listed_under_the_routing_that_their_model_has(name):
    recipe = recipes.read_recipe(name)
    assert recipe.card.routing == recipe.model.routing


@pytest.mark.parametrize("name", PUBLISHED)
def test_weights_load_and_learn_as_many_numbers_as_the_card_says(name):
    assert trainable_parameters(_load(name)) == capszoo.get_preset(name).card.parameters


@pytest.mark.parametrize("name", [n for n in PUBLISHED if not recipes.read_recipe(n).model.has(Classifies)])
@pytest.mark.parametrize("num_classes", [5, 10])
def test_a_network_that_knows_no_classes_takes_no_number_of_them(name, num_classes):
    with pytest.raises(ConfigError, match="num_classes needs an architecture that classifies"):
        capszoo.load(name, num_classes=num_classes)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_card_is_complete_and_rendered(name):
    folder = locating.weights_folder() / name
    card = read_card(folder / "card.json")
    assert card.to_markdown() == (folder / "README.md").read_text(encoding="utf-8")
    assert all([card.title, card.reference, card.deviations, card.licence, card.data_licence])
    wanted = set(recipes.read_recipe(name).card.protocols)
    # affNIST is the download of whoever wants it.
    missing = wanted - {metric.protocol for metric in card.metrics}
    assert len(card.metrics) == len(wanted - missing)
    assert all(protocol.endswith("affnist") for protocol in missing)
    for metric in card.metrics:
        low, high = metric.interval
        assert low <= metric.value <= high
        # A mean may be one of few images, where each of them takes seconds.
        if metric.wrong is not None:
            assert metric.n > 1000
            assert metric.value == metric.wrong / metric.n


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_recipe_is_what_the_weights_were_trained_by(name):
    """But for data that stand in for those in the name: else `capszoo train` would make other weights."""
    published = capszoo.get_preset(name)
    recipe = recipes.read_recipe(name, [f"data.name={published.card.trained_on}"])
    ignored = recipe.train.ignored & published.recipe.train.ignored
    values = {field: getattr(published.recipe.train, field) for field in ignored}
    train = dataclasses.replace(recipe.train, **values)
    assert train == published.recipe.train
    for part in ("model", "data", "stages"):
        assert getattr(recipe, part) == getattr(published.recipe, part)
    for field in ("title", "reference", "deviations"):
        assert getattr(recipe.card, field) == getattr(published.card, field)


def test_sparse_capsules_know_more_of_affine_digits_than_dense_ones():
    sparse, dense = (
        {
            metric.protocol: metric
            for metric in capszoo.get_preset(f"{name}_mnist_expanded_small").card.metrics
        }
        for name in ("sparse", "unmasked")
    )
    for protocol in ("svm", "svm_affnist_synth", "svm_transfer_affnist_synth"):
        assert sparse[protocol].interval[1] < dense[protocol].interval[0], protocol
    assert sparse["svm_affnist_synth"].value < 0.6 * dense["svm_affnist_synth"].value


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, recipe in ((name, recipes.read_recipe(name)) for name in PUBLISHED)
        if type(recipe.data) is Mnist
        and recipe.data.image_shape == (28, 28, 1)
        and recipe.model.has(Classifies)
    ],
)
def test_drawn_digits_are_read(name):
    images, labels = samples.digits()
    scores = np.asarray(_load(name).predict_on_batch(images)["scores"])
    assert (scores.argmax(-1) == labels).mean() >= 0.9


def test_pictures_are_not_classified_by_a_network_without_scores(run):
    status, out, err = run("predict", ROOT / "capszoo/data/samples/digits/3_a.png", "--model", "vae_mnist")
    assert status
    assert not out
    assert "vae_mnist scores nothing. Its outputs: code, reconstruction" in err


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.parent.name)
def test_published_bundles_say_what_their_models_say(bundle):
    verify(bundle)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", PUBLISHED)
def test_evaluation_reproduces_the_card_to_the_digit(name):
    model = _load(name)
    for metric in model.preset.card.metrics:
        try:
            again = evaluate(model, protocol=metric.protocol)
        except DataNotFound as error:
            pytest.skip(str(error))
        assert (again.wrong, again.n, again.fingerprint) == (metric.wrong, metric.n, metric.fingerprint)
        assert again.value == pytest.approx(metric.value, rel=1e-3)
