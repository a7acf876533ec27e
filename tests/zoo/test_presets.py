"""A preset is a recipe, weights that are exactly what was published, and a card that says what was measured."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from tiny import RECIPE

import capszoo
from capszoo.cli import tables
from capszoo.config import ConfigError
from capszoo.protocols import evaluate, provenance
from capszoo.training.folder import load_run
from capszoo.training.recipe import CardConfig
from capszoo.training.weight_files import WeightsError, read_arrays, write_arrays
from capszoo.zoo import locating, presets, recipes
from capszoo.zoo.card import ExportedFormat, read_card, write_card
from capszoo.zoo.integrity import IntegrityError
from capszoo.zoo.locating import WeightsNotFound
from capszoo.zoo.publishing import measure_again, publish


@pytest.mark.parametrize(
    "options", [{"weights": "weights.safetensors"}, {"num_classes": 7}, {"image_shape": (32, 32, 1)}]
)
def test_a_card_is_of_the_published_model_alone(zoo, options):
    if "weights" in options:
        options = {"weights": zoo / options["weights"]}
    changed, published = capszoo.load("tiny_mnist", **options), capszoo.load("tiny_mnist")
    assert (changed.preset.card, published.preset.card.name) == (None, "tiny_mnist")
    assert changed.preset.recipe.to_mapping() == published.preset.recipe.to_mapping()
    assert (changed.preset.routing, changed.preset.dataset) == ("dynamic", "mnist")


def test_load_gives_the_published_model(zoo):
    model = capszoo.load("tiny_mnist")
    check, _ = read_arrays(zoo / "check.safetensors")
    outputs = model.predict(check["images"], verbose=0)
    np.testing.assert_allclose(outputs["scores"], check["scores"], atol=1e-5)
    assert model.preset.name == "tiny_mnist"
    assert model.preset.recipe.data.class_names[3] == "3"
    np.testing.assert_array_equal(np.asarray(model.preprocess(check["images"])), check["images"])


def test_evaluate_reproduces_the_card_to_the_digit(zoo):
    model = capszoo.load("tiny_mnist")
    card = read_card(zoo / "card.json")
    again = evaluate(model, protocol="test_error")
    (metric,) = card.metrics
    assert (again.value, again.wrong, again.n, again.fingerprint) == (
        metric.value,
        metric.wrong,
        metric.n,
        metric.fingerprint,
    )
    assert metric.n == 100
    assert metric.paper == 0.0025
    assert metric.interval[0] <= metric.value <= metric.interval[1]


def test_weights_are_stored_in_half_precision_and_the_card_says_so(zoo):
    arrays, _ = read_arrays(zoo / "weights.safetensors")
    assert {array.dtype for array in arrays.values()} == {np.dtype("float16")}
    assert read_card(zoo / "card.json").files["weights.safetensors"].dtype == "float16"


def test_a_flipped_bit_in_the_weights_is_an_error(zoo):
    path = zoo / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="sha256"):
        capszoo.load("tiny_mnist")


def test_truncated_weights_are_an_error(zoo):
    path = zoo / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match="bytes expected"):
        capszoo.load("tiny_mnist")


def test_missing_weights_are_an_error_that_says_where_was_looked(zoo):
    (zoo / "weights.safetensors").unlink()
    with pytest.raises(locating.WeightsNotFound) as error:
        capszoo.load("tiny_mnist")
    assert str(zoo / "weights.safetensors") in str(error.value)
    assert "CAPSZOO_RELEASE_URL" in str(error.value)


def test_intact_weights_that_behave_differently_are_an_error(zoo):
    """A card that is consistent with wrong weights does not make them right."""
    path = zoo / "weights.safetensors"
    arrays, metadata = read_arrays(path)
    arrays["class_capsules/kernel"] = -arrays["class_capsules/kernel"]
    write_arrays(path, arrays, metadata)
    card = json.loads((zoo / "card.json").read_text())
    from capszoo.zoo.integrity import sha256_of

    card["files"]["weights.safetensors"]["sha256"] = sha256_of(path)
    card["files"]["weights.safetensors"]["bytes"] = path.stat().st_size
    (zoo / "card.json").write_text(json.dumps(card))
    with pytest.raises(IntegrityError, match="differ by"):
        capszoo.load("tiny_mnist")


def test_a_new_number_of_classes_makes_a_new_head_and_keeps_the_rest(zoo):
    model = capszoo.load("tiny_mnist", num_classes=7)
    arrays, _ = read_arrays(zoo / "weights.safetensors")
    assert model.output["scores"].shape == (None, 7)
    for name in ("conv1/kernel", "primary_capsules/kernel", "decoder/pixels/kernel"):
        (variable,) = (v for v in model.variables if v.path == name)
        np.testing.assert_array_equal(np.asarray(variable), arrays[name].astype("float32"))


@pytest.mark.parametrize("make", [capszoo.load, capszoo.create])
@pytest.mark.parametrize("num_classes", [0, 1, -3, True, 2.5, 3.0, "7"], ids=repr)
def test_what_is_no_number_of_classes_is_refused(zoo, make, num_classes):
    with pytest.raises(ConfigError, match="num_classes must be an integer of at least 2"):
        make("tiny_mnist", num_classes=num_classes)


def test_weights_of_another_shape_name_every_misfit(zoo, tmp_path):
    arrays, metadata = read_arrays(zoo / "weights.safetensors")
    arrays["conv1/bias"] = arrays["conv1/bias"][:-1]
    arrays["conv7/bias"] = arrays.pop("primary_capsules/bias")
    write_arrays(tmp_path / "other.safetensors", arrays, metadata)
    with pytest.raises(WeightsError) as error:
        capszoo.load("tiny_mnist", weights=tmp_path / "other.safetensors")
    message = str(error.value)
    assert "missing: primary_capsules/bias" in message
    assert "not in the model: conv7/bias" in message
    assert "conv1/bias: expected shape (16,). Received: (15,)" in message


@pytest.mark.filterwarnings("error")
def test_a_card_that_names_the_section_of_many_sets_is_of_its_set(zoo):
    card = json.loads((zoo / "card.json").read_text())
    card |= {"dataset": "tfds", "trained_on": "tfds"}
    card["recipe"]["data"] = {**card["recipe"]["data"], "name": "tfds", "set": "flowers"}
    (zoo / "card.json").write_text(json.dumps(card))
    card = read_card(zoo / "card.json")
    assert (card.dataset, card.trained_on) == ("flowers", "flowers")


def test_weights_trained_on_other_data_warn(zoo):
    card = json.loads((zoo / "card.json").read_text())
    card["trained_on"] = "synthnorb"
    (zoo / "card.json").write_text(json.dumps(card))
    with pytest.warns(UserWarning, match="trained on synthnorb, not on mnist"):
        capszoo.load("tiny_mnist")


def test_a_preset_without_weights_says_how_to_train_it(zoo):
    with pytest.raises(locating.WeightsNotFound, match="capszoo train tiny_mnist9"):
        capszoo.load("tiny_mnist9")
    assert capszoo.create("tiny_mnist9").output["scores"].shape == (None, 10)


def test_an_unknown_preset_names_the_nearest_one(zoo):
    with pytest.raises(ConfigError, match="did you mean 'tiny_mnist'"):
        capszoo.load("tiny_mnst")


def test_listing_is_in_natural_order(zoo):
    assert capszoo.list_models() == ["tiny_mnist", "tiny_mnist9", "tiny_mnist10"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"pretrained": True}, ["tiny_mnist"]),
        ({"pretrained": False}, ["tiny_mnist9", "tiny_mnist10"]),
        ({"pattern": "*t9"}, ["tiny_mnist9"]),
        ({"routing": "dynamic", "pretrained": True}, ["tiny_mnist"]),
        ({"dataset": "mnist", "pattern": "*10"}, ["tiny_mnist10"]),
        ({"trained_on": "mnist"}, ["tiny_mnist"]),
        ({"licence": "Apache-2.0"}, ["tiny_mnist"]),
        ({"architecture": "dynamic", "pretrained": True}, ["tiny_mnist"]),
        ({"max_parameters": 10}, []),
        ({"max_parameters": 10_000_000}, ["tiny_mnist"]),
    ],
)
def test_filters_select_presets(zoo, filters, expected):
    assert capszoo.list_models(**filters) == expected


def test_presets_are_selected_by_what_was_exported(zoo):
    card = read_card(zoo / "card.json")
    write_card(dataclasses.replace(card, exports={"onnx": ExportedFormat(1, {}, None, None)}), zoo)
    assert capszoo.list_models(exports="onnx") == ["tiny_mnist"]
    with pytest.raises(ConfigError, match="exports: no preset has 'saved-model'"):
        capszoo.list_models(exports="saved-model")


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"pretrained_rate": 1.5}, ValueError, r"pretrained_rate must be in \[0, 1\]"),
        ({"pretrained_rate": -0.1}, ValueError, r"pretrained_rate must be in \[0, 1\]"),
        ({"class_names": ["a", "a"]}, ConfigError, "must be different names"),
        ({"class_names": "ab"}, ConfigError, "must be different names"),
    ],
)
def test_what_cannot_be_loaded_is_refused(zoo, keywords, error, message):
    with pytest.raises(error, match=message):
        capszoo.load("tiny_mnist", **keywords)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}'])
def test_a_file_that_is_no_card_is_named(tmp_path, text):
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(ConfigError, match=r"card\.json: (not a readable card|card format)"):
        read_card(tmp_path / "card.json")


def test_a_filter_value_that_nothing_has_names_the_nearest(zoo):
    with pytest.raises(ConfigError, match="did you mean 'dynamic'"):
        capszoo.list_models(routing="dynamik")


def test_the_card_survives_its_file_and_is_rendered(zoo):
    card = read_card(zoo / "card.json")
    assert json.loads(card.to_json()) == json.loads((zoo / "card.json").read_text())
    text = capszoo.describe("tiny_mnist")
    assert text == (zoo / "README.md").read_text()
    assert card.metrics[0].sentence() in text
    assert "paper 0.25%" in text


def test_a_card_with_an_unknown_key_is_refused(zoo):
    card = json.loads((zoo / "card.json").read_text())
    (zoo / "card.json").write_text(json.dumps(card | {"metrcs": []}))
    with pytest.raises(ConfigError, match="did you mean 'metrics'"):
        capszoo.describe("tiny_mnist")


def test_a_recipe_from_anywhere_becomes_a_preset_like_any_other(zoo, published, tmp_path):
    (tmp_path / "mine_mnist.yaml").write_text(RECIPE, encoding="utf-8")
    recipe = recipes.read_recipe(tmp_path / "mine_mnist.yaml")
    card = publish(recipe, published / "run", zoo.parent)
    assert "mine_mnist" in capszoo.list_models(routing="dynamic", dataset="mnist", pretrained=True)
    assert capszoo.describe("mine_mnist") == card.to_markdown()
    model = capszoo.load("mine_mnist")
    again = dataclasses.replace(model.preset.recipe, dataset=recipe.dataset)
    assert again == recipe
    (metric,) = card.metrics
    assert evaluate(model, again, metric.protocol).value == metric.value


def test_a_run_is_published_with_the_card_of_its_recipe(zoo, published, tmp_path):
    shutil.copytree(published / "run", tmp_path / "tiny_mnist")
    recipe = recipes.read_recipe(tmp_path / "tiny_mnist")
    assert recipe == recipes.read_recipe("tiny_mnist")
    before = read_card(zoo / "card.json")
    card = publish(recipe, tmp_path / "tiny_mnist", zoo.parent)
    assert (card.title, card.routing, card.deviations) == (before.title, before.routing, before.deviations)
    assert [metric.protocol for metric in card.metrics] == ["test_error"]


def test_a_recipe_that_says_nothing_for_a_card_does_not_replace_one(zoo, published):
    before = (zoo / "card.json").read_bytes()
    bare = dataclasses.replace(recipes.read_recipe("tiny_mnist"), card=CardConfig())
    with pytest.raises(ConfigError, match=r"has a card, and this recipe has no section `card`"):
        publish(bare, published / "run", zoo.parent)
    assert (zoo / "card.json").read_bytes() == before


def test_a_recipe_that_says_nothing_for_a_card_is_published_again(zoo, published, tmp_path):
    bare = dataclasses.replace(recipes.read_recipe("tiny_mnist"), card=CardConfig())
    cards = [publish(bare, published / "run", tmp_path / "own") for _ in range(2)]
    assert cards[0] == cards[1]


def test_a_run_that_is_not_there_is_named_by_its_folder(zoo, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = run("publish", "tiny_mnist")
    assert (status, err) == (1, "error: there is no run in runs/tiny_mnist: it has no recipe.yaml.\n")


# What cards say of the code


def test_numbers_in_the_package_name_a_commit_at_which_they_can_be_measured_again(
    zoo, published, tmp_path, monkeypatch
):
    monkeypatch.setattr(provenance, "revision", lambda: "0.1.0 0123456789+")
    monkeypatch.setattr("capszoo.zoo.publishing.evaluate", _raise)  # nothing is measured before
    before = (zoo / "card.json").read_bytes()
    with pytest.raises(ConfigError, match=r"0123456789\+, a working tree with changes"):
        publish(recipes.read_recipe("tiny_mnist"), published / "run")
    with pytest.raises(ConfigError, match="a working tree with changes"):
        measure_again(capszoo.get_preset("tiny_mnist"))
    assert (zoo / "card.json").read_bytes() == before
    with pytest.raises(RuntimeError):  # elsewhere the card says so, and that is all
        publish(recipes.read_recipe("tiny_mnist"), published / "run", tmp_path / "elsewhere")


def test_a_preset_published_outside_the_package_is_found_by_its_folder(
    zoo, published, tmp_path, monkeypatch, run
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAPSZOO_HOME", str(tmp_path / "home"))
    (tmp_path / "mine.yaml").write_text(
        RECIPE.replace("licence: Apache-2.0", "licence: MIT"), encoding="utf-8"
    )
    status, said, _ = run("publish", "mine.yaml", "--run", published / "run")
    assert (status, said.splitlines()[-1].partition(":")[0]) == (0, "published mine in presets/mine")
    preset = capszoo.get_preset("presets/mine")
    assert (preset.name, preset.card.licence) == ("mine", "MIT")
    assert "mine" not in capszoo.list_models()
    model = capszoo.load("presets/mine")
    weights = zip(model.get_weights(), load_run(published / "run")[1].get_weights(), strict=True)
    assert max(np.abs(ours - theirs).max() for ours, theirs in weights) < 1e-2
    for metric in model.preset.card.metrics:
        assert metric.command == "capszoo evaluate presets/mine --protocol test_error"
        assert f"({metric.wrong} of" in run(*metric.command.split()[1:])[1]
    with pytest.raises(ConfigError, match="has no weights in the package to measure"):
        measure_again(preset)
    (tmp_path / "presets" / "mine" / "weights.safetensors").unlink()
    with pytest.raises(WeightsNotFound, match=r"presets/mine/weights\.safetensors"):
        capszoo.load("presets/mine")


def test_weights_are_measured_again_without_being_touched(zoo, run, monkeypatch):
    monkeypatch.setattr(provenance, "revision", lambda: "0.1.0 fedcba9876")
    before, files = (
        read_card(zoo / "card.json"),
        {path: path.read_bytes() for path in zoo.glob("*.safetensors")},
    )
    status, out, _ = run("measure-again", "tiny_mnist")
    assert (status, out.splitlines()[-1]) == (0, "tiny_mnist: measured at revision 0.1.0 fedcba9876")
    assert {path: path.read_bytes() for path in files} == files
    card = read_card(zoo / "card.json")
    (metric,) = card.metrics
    assert card.revision == metric.revision == "0.1.0 fedcba9876"
    old = {"revision": before.revision, "date": before.date}
    assert dataclasses.replace(card, metrics=(dataclasses.replace(metric, **old),), **old) == before
    assert (zoo / "README.md").read_text() == card.to_markdown()


def test_nothing_is_measured_where_nothing_is_published(zoo):
    with pytest.raises(ConfigError, match="tiny_mnist9 has no weights in the package to measure"):
        measure_again(capszoo.get_preset("tiny_mnist9"))


def test_a_failed_publication_leaves_the_old_one(zoo, published, monkeypatch):
    before = (zoo / "card.json").read_bytes()
    monkeypatch.setattr("capszoo.zoo.publishing.evaluate", _raise)
    with pytest.raises(RuntimeError):
        publish(recipes.read_recipe("tiny_mnist"), published / "run", zoo.parent)
    assert (zoo / "card.json").read_bytes() == before
    assert [path.name for path in zoo.parent.iterdir()] == ["tiny_mnist"]


def _raise(*_, **__):
    raise RuntimeError


def test_the_table_shows_numbers_only_where_they_were_measured(zoo):
    table = tables.preset_table([presets.get_preset(name) for name in capszoo.list_models()])
    measured = list(table.columns[5].cells)
    assert measured[0].startswith("test error")
    assert measured[1:] == ["", ""]
