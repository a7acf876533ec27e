"""Probabilistic capsules: the bound, the posteriors, what is learnt without labels, inference without a network."""

import dataclasses

import keras
import numpy as np
import pytest
import yaml
from oracles import probabilistic_capsules as oracle
from support import assert_same_state, fill, states_of_whole_and_killed
from tiny import PROBABILISTIC as TINY

from capszoo.config import ConfigError
from capszoo.data.preprocessing import Preprocessing
from capszoo.exporting import export
from capszoo.losses import GaussianNegativeLogLikelihood
from capszoo.models import ProbabilisticCapsNet, VariationalAutoencoder
from capszoo.models.architecture import OptimisesLatents, require
from capszoo.models.probabilistic.latent_optimisation import optimise_latents
from capszoo.training.run import train
from capszoo.training.weight_files import read_arrays, save_weights, start_weights, write_arrays
from capszoo.zoo import locating, recipes
from capszoo.zoo.loading import load
from capszoo.zoo.publishing import publish
from capszoo.zoo.recipes import parse_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")

NET = ProbabilisticCapsNet(**TINY)
IMAGES = np.random.default_rng(0).random((6, 10, 12, 1), dtype="float32")


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    return NET.build((10, 12, 1))


def test_the_bound_is_that_of_the_paper_for_the_same_sample(model):
    fill(model, scale=0.2)
    selection, renderer = model.get_layer("selection"), model.get_layer("renderer")
    selection.common_offsets.assign(selection.common_offsets + oracle.IDENTITY)
    capsules = {
        "object": model.get_layer("object_capsules"),
        "part": model.get_layer("part_capsules"),
    }
    observed = {
        f"{kind}_{what}": tensor
        for kind, layer in capsules.items()
        for what, tensor in (
            ("poses", layer.output[0]),
            ("logits", layer.output[2]),
            ("posterior", layer.input[1]),
        )
    }
    terms = {"divergence": NET.divergence(model), "reconstruction": model.output["reconstruction"]}
    # One call, so that all tensors are of one sample.
    values = keras.Model(model.input, {**observed, **terms})(IMAGES, training=True)
    values = {name: np.asarray(array, "float64") for name, array in values.items()}
    pixels = GaussianNegativeLogLikelihood(reduction=None)(IMAGES, values["reconstruction"].astype("float32"))
    bounds = -np.asarray(pixels) - values["divergence"].sum(axis=-1)
    raw = {
        weight.name: np.asarray(weight, "float64")
        for layer in (selection, renderer)
        for weight in layer.weights
    }
    weights = {
        "affinities": oracle.sigmoid(raw["affinities"]),
        "presence_logits": raw["part_logits"],
        "offsets": raw["common_offsets"][:, None] + raw["offsets"],
        "deviations": 0.1 + np.log1p(np.exp(raw["common_widths"][:, None] + raw["widths"])),
        "templates": oracle.sigmoid(raw["templates"][..., 0]),
        "alphas": oracle.sigmoid(raw["alphas"][..., 0]),
    }
    constants = {
        "temperature": 1.0,
        "clutter": 0.01,
        "clutter_deviation": 1.0,
        "off_deviation": 1.0,
        "presence": 0.1,
        "pixel_deviation": 0.2,
    }
    for image in range(3):
        sample = {name: array[image] for name, array in values.items()}
        posterior = {
            "object_logits": sample["object_posterior"],
            "part_logits": sample["part_posterior"],
        }
        assert np.abs(sample["object_logits"] - posterior["object_logits"]).max() > 0.1, "nothing was drawn"
        expected = oracle.bound(
            IMAGES[image, ..., 0].astype("float64"), sample, posterior, weights, constants
        )
        assert bounds[image] == pytest.approx(expected, rel=1e-4, abs=1e-2)


def test_each_training_step_draws_another_sample(model):
    objective = NET.objective(model)
    inputs = {"images": IMAGES}
    first, second = (objective.model(inputs, training=True)["divergence"] for _ in range(2))
    assert np.abs(np.asarray(first) - np.asarray(second)).max() > 1e-3
    np.testing.assert_array_equal(*(model(IMAGES)["logits"] for _ in range(2)))


def test_each_part_is_shared_out_completely(model):
    coefficients = model(IMAGES)["coefficients"]
    np.testing.assert_allclose(np.sum(coefficients, axis=-1), 1, rtol=1e-5)


def test_a_gaussian_posterior_starts_where_the_delta_posterior_ended(model, tmp_path):
    gaussian = ProbabilisticCapsNet(**TINY, posterior="gaussian").build((10, 12, 1))
    save_weights(model, tmp_path / "best.safetensors")
    left = start_weights(gaussian, tmp_path / "best.safetensors")
    assert {path.partition("/")[0] for path in left} == {
        "part_deviations",
        "object_deviations",
        "object_deviations_hidden",
    }
    expected = model(IMAGES)
    for name, array in gaussian(IMAGES).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    parts = keras.Model(gaussian.input, gaussian.get_layer("part_capsules").input[2])(IMAGES)
    assert np.max(parts) < np.log(0.1), "scales start small"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("parts", 0, "parts must be at least 1. Received: 0"),
        ("heads", 3, "heads must divide units, 8. Received: 3"),
        ("presence", 1.0, r"presence must be in \(0, 1\)"),
        ("temperature", 0.0, "temperature must be positive. Received: 0.0"),
        ("clutter", 0.0, "clutter must be positive. Received: 0.0"),
    ],
)
def test_illegal_options_are_refused(option, value, message):
    with pytest.raises(ValueError, match=message):
        ProbabilisticCapsNet(**{**TINY, option: value})


def test_the_default_network_has_the_papers_sizes():
    model = ProbabilisticCapsNet().build((28, 28, 1))
    generative = sum(model.get_layer(name).count_params() for name in ("selection", "renderer"))
    assert generative == 8400 < 30_000
    assert model.count_params() == 675_111
    decoder = VariationalAutoencoder().build((28, 28, 1)).get_layer("decoder")
    assert decoder.count_params() == 102_544 > 100_000


# Free-form inference


def test_free_inference_improves_the_bound_and_leaves_the_model_alone(model):
    before = [np.array(weight) for weight in model.weights]
    found = optimise_latents(NET, model, IMAGES, steps=60, learning_rate=0.05)
    assert found.losses[-10:].mean() < found.losses[:5].mean() - 1
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value, err_msg=weight.path)
    assert all(layer.trainable for layer in model.layers)
    expected = model.predict_on_batch(IMAGES)
    error, first = (
        ((IMAGES - outputs["reconstruction"]) ** 2).sum() for outputs in (found.outputs, expected)
    )
    assert error < first
    assert {*expected, "part_logits"} == set(found.outputs)


def test_without_steps_it_is_what_the_network_infers(model):
    found = optimise_latents(NET, model, IMAGES, steps=0)
    for name, array in model.predict_on_batch(IMAGES).items():
        np.testing.assert_allclose(found.outputs[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_an_image_is_inferred_by_itself(model):
    others = IMAGES.copy()
    others[1:] = 0
    found = []
    for images in (IMAGES, others):
        for name in ("part_capsules", "object_capsules"):
            # The same presences are drawn.
            generator = model.get_layer(name).seed_generator
            generator.state.assign(np.zeros_like(generator.state))
        found.append(optimise_latents(NET, model, images, steps=5).outputs)
    for name, array in found[0].items():
        np.testing.assert_allclose(found[1][name][0], array[0], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "network",
    [VariationalAutoencoder(), dataclasses.replace(NET, posterior="gaussian")],
    ids=["vae", "gaussian"],
)
def test_latents_are_optimised_only_by_networks_with_delta_posteriors(network):
    with pytest.raises(ConfigError, match="needs an architecture that optimises latent variables"):
        require(network, OptimisesLatents, "latent optimisation")


def test_latents_are_optimised_only_for_images_of_the_models_shape(model):
    with pytest.raises(ValueError, match="images must be"):
        optimise_latents(NET, model, IMAGES[:, :5])


def test_reconstructions_are_compared_with_the_deviation_of_the_architecture(model):
    network = dataclasses.replace(NET, pixel_deviation=0.37)
    assert network.objective(model).losses["reconstruction"].deviation == 0.37


def test_grey_levels_are_optimised_as_the_same_images(model):
    model.preprocess = Preprocessing()
    levels = np.round(IMAGES[:2] * 255).astype("uint8")
    losses = [optimise_latents(NET, model, images, steps=1).losses for images in (levels, levels / 255.0)]
    np.testing.assert_allclose(*losses, rtol=0.05)
    with pytest.raises(ValueError, match="images must be"):
        optimise_latents(NET, model, levels * 1.0)


# Runs


def mapping_of(model):
    return {
        "model": model,
        "data": {"name": "mnist", "validation": 50},
        "train": {"epochs": 2, "batch_size": 25, "checkpoint_steps": 4},
        "card": {"title": "tiny", "routing": "none", "protocols": {"probe": 0.03}},
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "mapping",
    [
        pytest.param({"name": "probabilistic", **TINY}, marks=pytest.mark.slow),
        {"name": "vae", "latents": 3, "hidden": 8},
        # Its noise is in the objective alone.
        {"name": "attention", "objects": 2, "object_dim": 3, "channels": 2, "hidden": 4},
    ],
    ids=str,
)
def test_an_interrupted_run_ends_with_the_same_bits(mapping, tmp_path):
    recipe = parse_recipe("tiny", mapping_of(mapping))
    expected, killed = states_of_whole_and_killed(recipe, tmp_path)
    assert any(name.startswith(("random/", "training/")) for name in expected)
    assert_same_state(killed, expected)


def test_a_checkpoint_from_before_the_objectives_noise_was_kept_is_still_read(tmp_path):
    mapping = mapping_of({"name": "attention", "objects": 2, "object_dim": 3, "channels": 2, "hidden": 4})
    recipe = parse_recipe("tiny", mapping)
    record = train(recipe, tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    arrays, metadata = read_arrays(path)
    kept = {name: array for name, array in arrays.items() if not name.startswith("training/")}
    assert len(kept) < len(arrays)
    write_arrays(path, kept, metadata)
    assert train(recipe, tmp_path) == record


@pytest.mark.slow
def test_it_is_published_and_loaded(tmp_path, monkeypatch):
    mapping = mapping_of({"name": "probabilistic", **TINY})
    recipe = parse_recipe("tiny_probabilistic", mapping)
    train(recipe, tmp_path / "run")
    (tmp_path / "configs").mkdir()
    text = yaml.safe_dump(mapping)
    (tmp_path / "configs" / "tiny_probabilistic.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(recipes, "folder", lambda: tmp_path / "configs")
    monkeypatch.setattr(locating, "weights_folder", lambda: tmp_path / "weights")
    monkeypatch.setenv("CAPSZOO_HOME", str(tmp_path / "home"))
    card = publish(recipe, tmp_path / "run", tmp_path / "weights")
    assert [(metric.metric, metric.paper) for metric in card.metrics] == [("linear probe test error", 0.03)]
    assert load("tiny_probabilistic").preset.card == card


@pytest.mark.slow
def test_exported_it_says_the_same_without_capszoo(model, tmp_path):
    names = [f"object {i}" for i in range(3)]
    report = export(model, tmp_path, name="tiny", version=1, stages=NET.stages, class_names=names)
    deviations = dict(report["deviations"])
    deviations.pop("litert-float16")
    assert max(value for outputs in deviations.values() for value in outputs.values()) < 1e-5
