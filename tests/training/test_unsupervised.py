"""Runs of a network without labels: validated by reconstruction, resumed with its mask's state, published, loaded."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import yaml
from support import Recorded, assert_same_state, state_of_a_killed_run

from capszoo.config import ConfigError
from capszoo.data.pipeline import evaluation_batches
from capszoo.data.sources import DataNotFound
from capszoo.training.folder import load_best
from capszoo.training.health import check_health
from capszoo.training.log import read_log
from capszoo.training.run import train
from capszoo.training.scoring import squared_errors
from capszoo.training.weight_files import read_arrays, write_arrays
from capszoo.zoo import locating, recipes
from capszoo.zoo.card import read_card, write_card
from capszoo.zoo.loading import load
from capszoo.zoo.presets import get_preset
from capszoo.zoo.publishing import publish
from capszoo.zoo.recipes import parse_recipe

# The tiny MNIST is the only one there is.
pytestmark = pytest.mark.usefixtures("data")

MAPPING = {
    "model": {"name": "sparse", "channels": 6, "primary_types": 2, "latent_capsules": 6, "latent_dim": 4},
    "data": {"name": "mnist", "validation": 50, "pad": 6},
    "train": {"epochs": 2, "batch_size": 25, "checkpoint_steps": 4, "gradient_clip": None},
    "card": {"title": "tiny", "routing": "dynamic", "protocols": {"svm_affnist": 0.1, "svm": 0.01}},
}


@pytest.fixture(scope="module")
def recipe():
    return parse_recipe("tiny_sparse", MAPPING)


@pytest.fixture(scope="module")
def finished(recipe, data):
    """The folder of an uninterrupted run."""
    train(recipe, data / "run")
    return data / "run"


def test_squared_errors_are_those_of_the_reconstructions(recipe, finished):
    model, _ = load_best(recipe, finished)
    split = recipe.data.open("test")
    images = np.concatenate([batch["images"] for batch in evaluation_batches(split, 40)])
    reconstruction = np.asarray(model(images)["reconstruction"])
    errors, of_black = squared_errors(model, split, batch_size=30)
    np.testing.assert_allclose(errors, ((images - reconstruction) ** 2).sum(axis=(1, 2, 3)), rtol=1e-4)
    np.testing.assert_allclose(of_black, (images**2).sum(axis=(1, 2, 3)), rtol=1e-5)


def test_the_validation_error_is_the_share_of_the_squared_sum_that_reconstructions_miss(recipe, finished):
    epochs = [record for record in read_log(finished) if "epoch" in record]
    model, best = load_best(recipe, finished)
    errors, of_black = squared_errors(model, recipe.data.open("validation"))
    assert best["error"] == min(record["validation_error"] for record in epochs)
    np.testing.assert_allclose(best["error"], errors.sum() / of_black.sum(), rtol=1e-5)
    assert epochs[1]["validation_error"] < epochs[0]["validation_error"]


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_same_state_and_weights(recipe, finished, tmp_path):
    expected, _ = read_arrays(finished / "checkpoint.safetensors")
    assert expected["model/sparse_mask/batches"] == 20
    assert_same_state(state_of_a_killed_run(recipe, tmp_path), expected)


@pytest.mark.parametrize("name", ["sparse", "unmasked"])
@pytest.mark.filterwarnings("error::UserWarning")
def test_a_fresh_network_is_healthy(name):
    recipe = parse_recipe("fresh", {**MAPPING, "model": {**MAPPING["model"], "name": name, "channels": 32}})
    images = recipe.data.open("train").batch(np.arange(25), None)["images"]
    report = check_health(recipe, recipe.build(), images)
    assert ("sparse_mask" in report) == (name == "sparse")


def test_published_and_loaded_it_has_its_masks_state(recipe, finished, tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "tiny_sparse.yaml").write_text(yaml.safe_dump(MAPPING), encoding="utf-8")
    monkeypatch.setattr(recipes, "folder", lambda: tmp_path / "configs")
    monkeypatch.setattr(locating, "weights_folder", lambda: tmp_path / "weights")
    monkeypatch.setenv("CAPSZOO_HOME", str(tmp_path / "home"))
    progress = Recorded()
    card = publish(recipe, finished, tmp_path / "weights", progress=progress)
    assert progress.said[0].startswith(
        "svm_affnist is not measured: affNIST (transformed, test) was not found."
    )
    assert [(metric.protocol, metric.metric) for metric in card.metrics] == [("svm", "SVM test error")]
    assert card.metrics[0].paper == 0.01
    assert get_preset("tiny_sparse").card == card
    model = load("tiny_sparse")
    best, _ = read_arrays(finished / "best.safetensors")
    for name in ("boosts", "frequencies", "batches"):
        value = np.asarray(getattr(model.get_layer("sparse_mask"), name))
        np.testing.assert_allclose(value, best[f"sparse_mask/{name}"], rtol=1e-3, err_msg=name)
    # A number of the earlier card is not lost because its data are not here.
    measured = (*card.metrics, dataclasses.replace(card.metrics[0], protocol="svm_affnist"))
    write_card(dataclasses.replace(card, metrics=measured), tmp_path / "weights" / "tiny_sparse")
    with pytest.raises(DataNotFound, match="affNIST"):
        publish(recipe, finished, tmp_path / "weights")
    assert len(read_card(tmp_path / "weights" / "tiny_sparse" / "card.json").metrics) == 2


def test_a_run_without_its_end_or_of_other_images_is_not_published(recipe, finished, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    arrays, metadata = read_arrays(run / "checkpoint.safetensors")
    write_arrays(run / "checkpoint.safetensors", arrays, metadata | {"images": "others"})
    with pytest.raises(ConfigError, match="was trained on other images"):
        publish(recipe, run, tmp_path / "weights")
    *before, last = (run / "log.jsonl").read_text().splitlines(keepends=True)
    record = json.loads(last)
    (run / "log.jsonl").write_text(
        "".join(before) + json.dumps({**record, "epoch": record["epoch"] - 1}) + "\n"
    )
    with pytest.raises(ConfigError, match="train it to its end"):
        publish(recipe, run, tmp_path / "weights")


def test_a_run_of_another_recipe_is_not_published(finished, tmp_path):
    other = parse_recipe("tiny_sparse", {**MAPPING, "train": {**MAPPING["train"], "learning_rate": 0.5}})
    with pytest.raises(ConfigError, match=r"another recipe .*train.learning_rate: 0.001 -> 0.5"):
        publish(other, finished, tmp_path / "weights")


def test_what_cannot_be_measured_at_all_is_not_published(finished, tmp_path):
    card = {**MAPPING["card"], "protocols": {"svm_affnist": 0.1, "svm_transfer_affnist": 0.8}}
    with pytest.raises(DataNotFound, match="affNIST"):
        publish(parse_recipe("tiny_sparse", {**MAPPING, "card": card}), finished, tmp_path / "weights")
    assert not list((tmp_path / "weights").iterdir())
