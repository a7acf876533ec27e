"""The top-down attention model: what it generates, how it parses, and how likely images are to it."""

import json

import keras
import numpy as np
import pytest

from capszoo import visualize
from capszoo.config import ConfigError
from capszoo.models import AttentionCapsNet
from capszoo.models.predictive_coding.attention import EvidenceBound, sample_images
from capszoo.protocols import LikelihoodProtocol, Subject, likelihood
from capszoo.protocols.likelihood import gaussian_likelihoods, importance_weights
from capszoo.training.health import check_health
from capszoo.training.run import train
from capszoo.visualize.parse import parent_colours
from capszoo.zoo.recipes import parse_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")

MODEL = {"name": "attention", "objects": 3, "object_dim": 4, "channels": 4, "hidden": 16}


def recipe_of(**options):
    return parse_recipe(
        "tiny",
        {
            "model": {**MODEL, **options},
            "data": {"name": "mnist", "validation": 50, "shift": 0},
            "train": {"epochs": 2, "batch_size": 25, "gradient_clip": None, "learning_rate": 0.003},
        },
    )


@pytest.fixture(scope="module")
def subject(data):
    """A model after some training by hand."""
    recipe = recipe_of()
    keras.utils.set_random_seed(0)
    model = recipe.build()
    objective = recipe.objective(model)
    batch = recipe.data.open("train").batch(np.arange(100), None)
    objective.compile(keras.optimizers.Adam(0.005), batch)
    for _ in range(40):
        objective.model.train_on_batch(*objective.arrange(batch))
    return Subject("trained", recipe, model)


@pytest.fixture(scope="module")
def fresh(data):
    recipe = recipe_of()
    keras.utils.set_random_seed(0)
    return Subject("fresh", recipe, recipe.build())


@pytest.fixture(scope="module")
def images(subject):
    return subject.recipe.data.open("test").batch(np.arange(20), None)["images"]


def test_scores_are_the_shares_of_the_parts_that_objects_are_parents_of(subject, images):
    outputs = subject.model.predict(images, verbose=0)
    np.testing.assert_allclose(outputs["coefficients"].sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(outputs["scores"], outputs["coefficients"].mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(outputs["scores"].sum(axis=-1), 1, rtol=1e-5)


def test_learning_makes_held_out_images_likelier(subject, fresh):
    report = LikelihoodProtocol(images=40, samples=5, batch_size=20).measure([subject, fresh])
    assert report.models["trained"]["bound"] > report.models["fresh"]["bound"] + 0.1


@pytest.mark.slow
def test_more_samples_bring_the_bound_nearer_and_none_reaches_the_ceiling(subject):
    few, many = (
        LikelihoodProtocol(images=40, samples=k).measure([subject]).models["trained"] for k in (1, 40)
    )
    assert few["importance"] == pytest.approx(few["bound"], abs=1e-6)
    assert many["importance"] > many["bound"]
    report = LikelihoodProtocol(images=40, samples=1).measure([subject])
    assert report.models["trained"]["importance"] < report.ceiling
    assert report.ceiling == pytest.approx(-0.5 * np.log(2 * np.pi * np.e * 0.01))


def test_samples_that_agree_make_both_bounds_what_they_say(subject, monkeypatch):
    monkeypatch.setattr(likelihood, "importance_weights", lambda *_: np.full((8, 10), 784.0))
    values = LikelihoodProtocol(images=10, samples=8).measure([subject]).models["trained"]
    assert values["bound"] == pytest.approx(1)
    assert values["importance"] == pytest.approx(1)


def test_with_a_single_sample_at_the_mean_the_bound_is_what_the_distribution_says(subject, images):
    """Deviations of almost nothing: v is m, and only the terms of a known v are left."""
    top_down, patches = subject.model.get_layer("top_down"), subject.model.get_layer("parts")
    means, _ = keras.Model(subject.model.input, subject.model.get_layer("object_capsules").output)(images)
    tiny = np.full(means.shape, -12.0, "float32")
    parts = patches(images)
    terms = np.asarray(EvidenceBound(top_down)(means, tiny, parts, noisy=False))
    np.testing.assert_allclose(terms[:, 0], top_down.distribution(means).log_prob(parts), rtol=1e-3, atol=0.5)
    prior = -0.5 * np.sum(np.square(means), axis=(1, 2))
    # ln p - ln q = -v^2 / 2 + e^2 / 2 + ln s; e^2 is 12 on average
    np.testing.assert_allclose((terms[:, 1] - prior).mean(), -12 * 12 + 6, atol=3)


def test_the_terms_of_the_bound_are_those_of_its_sample_and_of_noisy_parts(subject, images, monkeypatch):
    monkeypatch.setattr(EvidenceBound, "_noise", lambda _, like: keras.ops.ones_like(like))
    top_down, parts = (subject.model.get_layer(name) for name in ("top_down", "parts"))
    means = np.random.default_rng(0).normal(size=(20, 3, 4)).astype("float32")
    deviations = np.full_like(means, 0.5)
    terms = np.asarray(EvidenceBound(top_down)(means, np.log(deviations), parts(images)))
    sample = means + 0.5
    expected = top_down.distribution(sample).log_prob(parts(images) + 0.1)
    np.testing.assert_allclose(terms[:, 0], expected, rtol=1e-5)
    ratio = -np.square(sample) / 2 + 0.5 + np.log(0.5)
    np.testing.assert_allclose(terms[:, 1], ratio.sum(axis=(1, 2)), rtol=1e-4)


def test_the_noise_of_the_bound_is_normal(subject):
    noise = np.asarray(
        EvidenceBound(subject.model.get_layer("top_down"), 0)._noise(np.zeros((100, 100), "float32"))
    )
    assert noise.mean() == pytest.approx(0, abs=0.05)
    assert noise.std() == pytest.approx(1, abs=0.05)


def test_the_same_images_have_the_same_noise_for_every_model(subject, fresh):
    alone = LikelihoodProtocol(images=20, samples=1).measure([subject])
    beside = LikelihoodProtocol(images=20, samples=1).measure([fresh, subject])
    assert alone.gaussian == beside.gaussian
    of_model = beside.models["trained"]
    assert of_model["gain"] == pytest.approx(of_model["importance"] - beside.gaussian)


def test_gaussians_are_those_of_scipy(subject):
    from scipy.stats import multivariate_normal

    class Split:
        images = np.random.default_rng(0).uniform(size=(300, 2, 3, 1)).astype("float32")

        def __len__(self):
            return 300

        def batch(self, indices, rng):
            return {"images": self.images[indices]}

    noisy = np.random.default_rng(1).normal(size=(7, 2, 3, 1))
    flat = Split.images.reshape(300, 6).astype("float64")
    covariance = np.cov(flat.T, bias=True) + 0.04 * np.eye(6)
    full, independent = gaussian_likelihoods(Split(), noisy, 0.2)
    rows = noisy.reshape(7, 6)
    expected = multivariate_normal(flat.mean(axis=0), covariance).logpdf(rows)
    np.testing.assert_allclose(full, expected, rtol=1e-4)
    diagonal = np.diag(np.diag(covariance))
    expected = multivariate_normal(flat.mean(axis=0), diagonal).logpdf(rows)
    np.testing.assert_allclose(independent, expected, rtol=1e-4)


def test_importance_weights_are_one_for_each_sample_and_image(subject, images):
    logs = importance_weights(subject, images, images, samples=3, batch_size=8)
    assert logs.shape == (3, 20)
    assert (logs.std(axis=0) > 0).all()


def test_importance_weights_are_the_same_each_time_and_samples_of_each_batch_its_own(subject, images):
    twice = np.concatenate([images[:4], images[:4]])
    logs = importance_weights(subject, twice, twice, samples=2, batch_size=4)
    np.testing.assert_array_equal(importance_weights(subject, twice, twice, samples=2, batch_size=4), logs)
    assert not np.any(logs[:, :4] == logs[:, 4:])
    assert not np.any(logs[0] == logs[1])


def test_the_report_says_what_was_measured(subject):
    report = LikelihoodProtocol(images=10, samples=2).measure([subject], command="capszoo compare x")
    written = json.loads(report.to_json())
    assert (written["n"], written["samples"], written["noise"]) == (10, 2, 0.1)
    assert 1 / 3 <= written["choice"]["trained"] <= 1
    assert 1 <= written["parents"]["trained"] <= 3


def test_a_model_without_a_bound_is_refused(subject):
    recipe = parse_recipe("x", {"model": {"name": "dynamic", "channels": 4}, "data": {"name": "mnist"}})
    with pytest.raises(
        ConfigError, match=r"bounds the likelihood.*such as .*attention.*\. Received: DynamicCapsNet"
    ):
        LikelihoodProtocol().measure([Subject("x", recipe, None)])


def test_models_of_another_noise_are_not_compared(subject):
    other = Subject("other", recipe_of(noise=0.2), None)
    with pytest.raises(ConfigError, match="the same data and noise"):
        LikelihoodProtocol().measure([subject, other])


def test_samples_are_images_whose_parts_have_one_parent_each(subject):
    images, parents = sample_images(subject.model, 6, seed=1)
    assert images.shape == (6, 28, 28, 1)
    assert images.min() >= 0
    assert images.max() <= 1
    np.testing.assert_array_equal(np.sort(parents, axis=-1)[..., -1], 1)
    np.testing.assert_array_equal(parents.sum(axis=-1), 1)
    np.testing.assert_array_equal(images, sample_images(subject.model, 6, seed=1)[0])
    assert np.abs(images - sample_images(subject.model, 6, seed=2)[0]).max() > 0.01


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_fresh_network_is_healthy(fresh, images):
    wide = recipe_of(channels=32)
    assert set(check_health(wide, wide.build(), images)) == {"conv1", "conv2"}


@pytest.mark.slow
def test_a_run_of_it_lowers_the_validation_error(data):
    record = train(recipe_of(), data / "run")
    assert record["loss"] < 400
    assert record["validation_error"] < 1


def test_drawings_show_parents_and_samples(subject, images):
    drawn = {drawing.name: drawing.figure for drawing in visualize.overview(subject.model, images[:3])}
    assert set(drawn) == {"parse", "samples", "reconstructions"}
    assert len(drawn["parse"].axes) == 9
    outputs = subject.model.predict(images[:3], verbose=0)
    colours = parent_colours(outputs["coefficients"].shape[-1])
    for column, parents in enumerate(outputs["coefficients"]):
        painted = drawn["parse"].axes[6 + column].images[0].get_array()
        for patch, colour in zip(parents, painted.reshape(len(parents), 3), strict=True):
            share = max(patch)
            (best,) = (k for k, each in enumerate(patch) if each == share)
            np.testing.assert_allclose(colour, share * colours[best] + 1 - share, atol=1e-5)
    assert visualize.draw_samples(subject.model, 2, 3).axes[0].images[0].get_array().shape == (56, 84)


def test_a_model_without_parts_is_not_drawn(tiny_model):
    with pytest.raises(ValueError, match="needs an architecture that bounds the likelihood of images"):
        visualize.draw_samples(tiny_model)


@pytest.mark.parametrize("options", [{"objects": 0}, {"patch": 0}, {"noise": 0.0}, {"num_iterations": 0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        AttentionCapsNet(**options)


def test_images_that_are_no_whole_number_of_patches_are_refused():
    with pytest.raises(ValueError, match="multiple of 4"):
        AttentionCapsNet().build((30, 28, 1))


@pytest.mark.parametrize(("patch", "channels"), [(1, 1), (4, 3), (7, 1)])
def test_patches_on_whose_sphere_no_density_is_known_are_refused(patch, channels):
    with pytest.raises(
        ValueError, match=rf"2 to 32 numbers\. Received: patches of {patch} x {patch} pixels in"
    ):
        AttentionCapsNet(patch=patch).build((28, 28, channels))


def test_a_bound_is_made_again_from_its_configuration(subject):
    bound = EvidenceBound(subject.model.get_layer("top_down"), 3)
    again = EvidenceBound.from_config(bound.get_config())
    assert again.get_config() == bound.get_config()
    assert again.seed == 3
