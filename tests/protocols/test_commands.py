"""The command line measures runs of the tiny nets as it does presets."""

import json

import numpy as np
import pytest
from PIL import Image
from tiny import PROBABILISTIC
from tiny_norb import read_pairs

from capszoo.data import smallnorb
from capszoo.training.run import train
from capszoo.zoo.recipes import read_recipe


@pytest.fixture(scope="module")
def runs(recipe_folder, tmp_path_factory):
    """Folders of two runs on familiar azimuths, and the record of the first."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smallnorb, "read_pairs", read_pairs)
        for name, seed in (("first", 0), ("second", 1)):
            overrides = [
                "data.views=familiar azimuth",
                "data.standardise=false",
                "data.jitter=raw",
                f"train.seed={seed}",
                "train.epochs=1",
            ]
            train(read_recipe(recipe_folder / "tiny_cnn.yaml", overrides), root / name)
    return root


@pytest.fixture(autouse=True)
def in_the_folder_of_the_runs(monkeypatch, runs):
    """Commands name the runs by their folders."""
    monkeypatch.chdir(runs)


def test_a_run_is_evaluated_by_its_own_recipe(run, tmp_path):
    status, out, _ = run(
        "evaluate", "first", "--protocol", "novel_azimuths", "--json", tmp_path / "result.json"
    )
    assert status == 0
    (result,) = json.loads((tmp_path / "result.json").read_text())
    assert (result["protocol"], result["n"]) == ("novel_azimuths", 75)
    assert result["command"] == "capszoo evaluate first --protocol novel_azimuths"
    assert "novel_azimuths: test error" in out
    assert "test_error: test error" in run("evaluate", "first")[1]


def test_table_2_is_printed_and_written(run, tmp_path):
    status, out, _ = run("viewpoints", "first", "second", "--json", tmp_path / "table.json")
    assert status == 0
    for word in (
        "cnn: first",
        "capsules: second",
        "novel",
        "familiar",
        "13.5%",
        "training steps: cnn 3, capsules 3",
    ):
        assert word in out
    table = json.loads((tmp_path / "table.json").read_text())
    assert table["errors"]["familiar"]["cnn"]["command"] == "capszoo viewpoints first second"
    assert table["names"] == {"cnn": "first", "capsules": "second"}


def test_an_attack_is_printed_written_and_drawn(run, tmp_path):
    options = ("--images", 6, "--epsilon", 0.3, "--epsilon", 0.1, "--loss", "objective")
    status, out, _ = run("attack", "first", "--source", "second", "--out", tmp_path / "new", *options)
    assert status == 0
    assert "first, images of second" in out
    assert "of the gradients are zero" in out
    report = json.loads((tmp_path / "new" / "attack.json").read_text())
    assert [point["epsilon"] for point in report["curves"][0]["points"]] == [0, 0.1, 0.3]
    assert (report["n"], report["loss"], report["space"]) == (6, "objective", "model input, in [0, 1]")
    assert report["command"].startswith("capszoo attack first --images 6 --loss objective")
    assert report["command"].endswith("--source second --epsilon 0.3 --epsilon 0.1")
    assert np.asarray(Image.open(tmp_path / "new" / "attack.png")).std() > 0


def test_what_does_not_fit_is_one_line_and_exit_status_1(run):
    for arguments in (
        ("evaluate", "first", "--protocol", "novel_elevations"),
        ("attack", "first", "--against", "first", "--out", "x"),
        ("viewpoints", "nowhere", "first"),
    ):
        status, _, err = run(*arguments)
        assert status == 1
        assert err.startswith("error: ")
        assert err.count("\n") == 1


@pytest.fixture(scope="module")
def digits(data):
    """Folders of runs on tiny digits: without routing, with it, and two that generate."""
    models = {
        "sum": "{name: predictive_coding, channels: 4, primary_types: 2}",
        "routed": "{name: predictive_coding, channels: 4, primary_types: 2, routing: dynamic}",
        "attention": "{name: attention, objects: 2, object_dim: 3, channels: 2, hidden: 8}",
        "probabilistic": json.dumps({"name": "probabilistic", **PROBABILISTIC}),
    }
    for name, model in models.items():
        path = data / f"{name}.yaml"
        path.write_text(
            f"model: {model}\ndata: {{name: mnist, validation: 50}}\n"
            "train: {epochs: 1, batch_size: 50, images: 50}\ncard: {title: A tiny net}\n",
            encoding="utf-8",
        )
        train(read_recipe(path), data / name)
    return data


def test_sparsity_is_measured_and_drawn(run, digits, tmp_path):
    status, out, err = run("sparsity", digits / "sum", "--images", 3, "--steps", 2, "--out", tmp_path)
    assert status == 0, err
    report = json.loads((tmp_path / "sparsity.json").read_text())
    assert (report["n"], report["steps"], report["penalty"]) == (3, 2, {"class_capsules": 1.0})
    for condition, measured in report["layers"]["class_capsules"].items():
        assert f"{measured['hoyer']:.3f}" in out, condition
    assert Image.open(tmp_path / "inferred.png").width > 100


def test_likelihoods_are_measured_and_samples_drawn(run, digits, tmp_path):
    arguments = ("--images", 4, "--samples", 2, "--out", tmp_path)
    status, out, err = run("likelihood", digits / "attention", *arguments)
    assert status == 0, err
    report = json.loads((tmp_path / "likelihood.json").read_text())
    assert (report["n"], report["samples"]) == (4, 2)
    assert f"{report['gaussian']:.4f}" in out
    for name in ("parse", "samples"):
        assert Image.open(tmp_path / f"{name}.png").width > 100


def test_free_inference_is_measured_beside_the_networks_and_drawn(run, digits, tmp_path):
    arguments = ("--images", 4, "--steps", 3, "--max-angle", 90, "--out", tmp_path)
    status, out, err = run("infer-freely", digits / "probabilistic", *arguments)
    assert status == 0, err
    report = json.loads((tmp_path / "infer_freely.json").read_text())
    assert (report["n"], report["steps"], report["max_angle"]) == (4, 3, 90)
    for condition in ("upright", "turned"):
        assert f"{report['network'][condition]['loss']:.1f}" in out
        assert f"{report['free'][condition]['error']:.1%}" in out
        assert Image.open(tmp_path / f"{condition}.png").width > 100


def test_networks_with_and_without_routing_are_compared(run, digits, tmp_path):
    status, out, err = run("compare-routing", digits / "sum", digits / "routed", "--out", tmp_path)
    assert status == 0, err
    assert "no routing, decoder (" in out
    assert "paper 0.66%" in out
    errors = json.loads((tmp_path / "compare_routing.json").read_text())["errors"]
    assert {condition: error["paper"] for condition, error in errors.items()} == {
        "no routing, decoder": 0.0066,
        "routing, decoder": 0.0077,
    }
