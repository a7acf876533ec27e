"""What the demo page runs says what the Keras model says."""

import json
import warnings

import keras
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

import capszoo
import capszoo.exporting.demo
from capszoo.config import ConfigError
from capszoo.data.samples import digits, toys
from capszoo.exporting.demo import DemoFunctions, require_agreement, write_demo
from capszoo.models import DynamicCapsNet, InvertedAttentionCapsNet
from capszoo.visualize import coefficient_maps, coefficients
from capszoo.zoo import locating
from capszoo.zoo.integrity import IntegrityError, sha256_of

PICTURES = [
    locating.weights_folder().parent / "data/samples/digits" / name for name in ("3_a.png", "8_b.png")
]


@pytest.fixture(scope="module")
def functions(tiny_model):
    return DemoFunctions(tiny_model)


@pytest.fixture(scope="module")
def images():
    return digits()[0][::7]


def test_the_network_says_what_the_model_says(functions, images, tiny_model):
    received, expected = functions.network(images), tiny_model(images)
    for name in ("scores", "poses"):
        np.testing.assert_allclose(received[name], expected[name], atol=1e-6)


def test_its_coefficients_are_those_of_the_last_iteration(functions, images, tiny_model):
    np.testing.assert_allclose(
        functions.network(images)["coefficients"], coefficients(tiny_model, images)[-1], atol=1e-6
    )


def test_activations_and_coefficients_make_the_maps_of_the_page(functions, images, tiny_model):
    received = functions.network(images)
    sent = np.asarray(received["activations"])[..., None] * np.asarray(received["coefficients"])
    maps = sent.reshape(len(images), *functions.grid, 10).sum(axis=-2)
    np.testing.assert_allclose(maps, coefficient_maps(tiny_model, images), atol=1e-5)


def test_the_decoder_reconstructs_from_the_selected_capsule_alone(functions, images, tiny_model):
    outputs = keras.tree.map_structure(np.asarray, tiny_model(images[:1]))
    selection = np.eye(10, dtype="float32")[None, outputs["scores"].argmax(axis=-1)]
    others = outputs["poses"] + 0.1 * (1 - selection[0][..., None])
    for poses in (outputs["poses"], others):
        received = functions.decoder(poses, selection)["reconstruction"]
        np.testing.assert_allclose(received, outputs["reconstruction"], atol=1e-6)


def test_a_model_that_cannot_be_shown_is_refused(tiny_model, tmp_path):
    with pytest.raises(ConfigError, match="the demo needs an architecture that classifies"):
        write_demo(capszoo.create("vae_mnist"), tmp_path / "demo")
    with pytest.raises(ValueError, match=r"on a grid .* 'efficient', of the grid \(1, 1, 16\)"):
        write_demo(capszoo.create("efficient_mnist"), tmp_path / "demo")
    # Its class capsules see capsules that the layer makes itself, not the grid that it takes.
    concurrent = InvertedAttentionCapsNet((4, 4), (1, 1), primary_types=3, conv_types=(2,))
    with pytest.raises(ValueError, match=r"on a grid .* 'inverted_attention'"):
        DemoFunctions(concurrent.build((20, 20, 1), 3))
    with pytest.raises(ValueError, match="with weights and a card"):
        write_demo(tiny_model, tmp_path / "demo")
    assert not list(tmp_path.iterdir())


def test_without_a_decoder_there_is_the_network_alone():
    without = DynamicCapsNet(channels=8, primary_types=2, decoder=False).build((28, 28, 1), 10)
    assert list(DemoFunctions(without).inputs) == ["network"]


def test_capsules_with_activations_of_their_own_are_shown_as_they_are():
    pairs, _ = toys()
    model = capszoo.create("matrix_em_smallnorb")
    functions = DemoFunctions(model)
    received = functions.network(pairs[:2])
    seen = model.preprocess(pairs[:2])
    np.testing.assert_array_equal(received["seen"], seen)
    expected = model(seen)
    for name in ("scores", "poses"):
        np.testing.assert_allclose(received[name], expected[name], atol=1e-4)
    sent = np.asarray(received["activations"])[..., None] * np.asarray(received["coefficients"])
    maps = sent.reshape(2, *functions.grid, 5).sum(axis=-2)
    np.testing.assert_allclose(maps, coefficient_maps(model, np.asarray(seen)), atol=1e-5)


@pytest.mark.parametrize("deviation", [0.006, float("nan")])
def test_a_file_that_deviates_is_refused(deviation):
    require_agreement({"scores": 0.004})
    with pytest.raises(IntegrityError, match="scores of the demo deviate"):
        require_agreement({"poses": 0.0, "scores": deviation})


def test_another_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(capszoo.exporting.demo, "_convert", lambda *_: pytest.fail("nothing is converted"))
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="a demo to be replaced"):
        write_demo(capszoo.load("dynamic_mnist"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_two_pictures_of_one_name_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(capszoo.exporting.demo, "_convert", lambda *_: pytest.fail("nothing is converted"))
    with pytest.raises(ValueError, match="pictures of different names are needed"):
        write_demo(capszoo.load("dynamic_mnist"), tmp_path / "demo", ["a/3.png", "b/3.png"])


def test_nothing_is_written_of_files_that_deviate(tmp_path, monkeypatch):
    demo = tmp_path / "demo"
    demo.mkdir()
    (demo / "demo.json").write_text("the former one")
    monkeypatch.setattr(capszoo.exporting.demo, "_convert", lambda functions, name, folder: folder / name)
    monkeypatch.setattr(capszoo.exporting.demo, "deviations_of", lambda *_: {"scores": 1.0})
    with pytest.raises(IntegrityError, match="scores of the demo deviate"):
        write_demo(capszoo.load("dynamic_mnist"), demo, PICTURES)
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]
    assert (demo / "demo.json").read_text() == "the former one"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of the site's demo, written twice, and what was returned."""
    folder = tmp_path_factory.mktemp("site") / "demo"
    folder.mkdir()
    (folder / "demo.json").write_text("the former one")
    return folder, write_demo(capszoo.load("dynamic_mnist"), folder, PICTURES)


@pytest.mark.slow
def test_the_folder_holds_what_the_description_lists(written):
    folder, report = written
    assert json.loads((folder / "demo.json").read_text()) == report
    listed = {file["name"] for file in report["files"].values()} | set(report["pictures"]) | {"demo.json"}
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == listed
    assert [path.name for path in folder.parent.iterdir()] == ["demo"], "nothing temporary is left"
    for file in report["files"].values():
        path = folder / file["name"]
        assert (sha256_of(path), path.stat().st_size) == (file["sha256"], file["bytes"])
    assert sum(file["bytes"] for file in report["files"].values()) < 20e6


@pytest.mark.slow
def test_the_description_is_the_cards_and_the_networks(written):
    report = written[1]
    card = capszoo.get_preset("dynamic_mnist").card
    assert report["measured"] == card.metrics[0].sentence()
    assert (report["class_names"], report["grid"]) == (list("0123456789"), [6, 6, 32])
    assert report["centres"]["rows"] == [8, 10, 12, 14, 16, 18]


@pytest.mark.slow
def test_the_files_take_one_image_and_use_operators_of_litert_only(written):
    folder, report = written
    inputs = {
        "network": {"images": [1, 28, 28, 1]},
        "decoder": {"poses": [1, 10, 16], "selection": [1, 1, 10]},
    }
    for name, expected in inputs.items():
        path = folder / report["files"][name]["name"]
        details = Interpreter(str(path)).get_signature_runner().get_input_details()
        assert {key: value["shape_signature"].tolist() for key, value in details.items()} == expected
        model = schema.Model.GetRootAsModel(path.read_bytes(), 0)
        assert not any(model.OperatorCodes(i).CustomCode() for i in range(model.OperatorCodesLength()))


@pytest.mark.slow
def test_float16_weights_lose_little(written):
    deviations = written[1]["deviations"]
    assert set(deviations) == {"scores", "poses", "coefficients", "activations", "reconstruction"}
    assert 0 < max(deviations.values()) < 1e-3


@pytest.fixture(scope="module")
def toy_files(tmp_path_factory):
    """The folder of the site's demo of toys, and what was returned."""
    folder = tmp_path_factory.mktemp("site") / "toys"
    pairs = sorted((PICTURES[0].parents[1] / "toys").glob("*.png"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = capszoo.load("matrix_em_smallnorb")
    return folder, write_demo(model, folder, pairs)


@pytest.mark.slow
def test_the_network_of_toys_is_one_small_file_of_litert_only(toy_files):
    folder, report = toy_files
    assert list(report["files"]) == ["network"]
    path = folder / report["files"]["network"]["name"]
    assert path.name == "network.float32.tflite"
    assert path.stat().st_size < 1e6
    images = Interpreter(str(path)).get_signature_runner().get_input_details()["images"]
    assert images["shape_signature"].tolist() == [1, 96, 96, 2]
    model = schema.Model.GetRootAsModel(path.read_bytes(), 0)
    assert not any(model.OperatorCodes(i).CustomCode() for i in range(model.OperatorCodesLength()))


@pytest.mark.slow
def test_the_network_of_toys_says_what_the_model_says(toy_files):
    report = toy_files[1]
    assert set(report["deviations"]) == {"seen", "scores", "poses", "coefficients", "activations"}
    assert 0 < max(report["deviations"].values()) < 1e-3
    assert (report["image_shape"], report["seen_shape"], report["grid"]) == (
        [96, 96, 2],
        [32, 32, 2],
        [4, 4, 16],
    )
    assert report["centres"]["rows"] == [8, 12, 16, 20]
    assert len(report["pictures"]) == 5
