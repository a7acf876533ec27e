"""The command line measures runs of the tiny nets as it does presets."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image
from tiny import PROBABILISTIC
from tiny_norb import read_pairs

from capszoo.data import smallnorb
from capszoo.protocols import Protocol, protocols
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "first", "--out", "new"), "--out needs --protocol"),
        (("compare", "first", "--set", "images=6"), "--set needs --protocol"),
        (("compare", "first", "--protocol", "test_error", "--again"), "--again reads no cards"),
        (("bench", "kernel_mnist", "model.num_iterations=1", "--record"), "an override is not for --record"),
        (("bench", "kernel_mnist", "--batch", 8, "--record"), "--batch is not for --record"),
        (("bench", "kernel_mnist", "--classes", 8), "--classes needs --side"),
        (("bench", "kernel_mnist", "--side", 32, "--bundle", "x"), "--bundle is not for --side"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(run, arguments, message):
    status, _, error = run(*arguments)
    assert status == 1
    assert message in error


def test_the_command_names_the_modules_that_it_needs(run, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSZOO_IMPORT", "json")
    run("evaluate", "first", "--protocol", "test_error", "--json", tmp_path / "result.json")
    (result,) = json.loads((tmp_path / "result.json").read_text())
    assert result["command"] == "capszoo --import json evaluate first --protocol test_error"


def test_table_2_is_printed_and_written(run, tmp_path):
    status, out, _ = run("compare", "first", "second", "--protocol", "viewpoints", "--out", tmp_path)
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
    table = json.loads((tmp_path / "viewpoints.json").read_text())
    command = "capszoo compare first second --protocol viewpoints"
    assert table["errors"]["familiar"]["cnn"]["command"] == command
    assert table["names"] == {"cnn": "first", "capsules": "second"}


def test_an_attack_is_printed_written_and_drawn(run, tmp_path):
    options = ("--set", "images=6", "--set", "epsilons=[0.1, 0.3]", "--set", "loss=objective")
    status, out, _ = run(
        *("compare", "first", "second", "--protocol", "attack", "--out", tmp_path / "new", *options),
        *("--set", "source_model=second"),
    )
    assert status == 0
    assert "first, images of second" in out
    assert "of the gradients are zero" in out
    report = json.loads((tmp_path / "new" / "attack.json").read_text())
    assert [point["epsilon"] for point in report["curves"][0]["points"]] == [0, 0.1, 0.3]
    assert (report["n"], report["loss"], report["space"]) == (6, "objective", "model input, in [0, 1]")
    assert report["command"] == (
        "capszoo compare first second --protocol attack --set images=6 --set 'epsilons=[0.1, 0.3]' "
        "--set loss=objective --set source_model=second"
    )
    assert np.asarray(Image.open(tmp_path / "new" / "attack_attack.png")).std() > 0


def test_models_are_measured_one_after_the_other_by_a_protocol_of_one_model(run, tmp_path):
    arguments = ("--protocol", "novel_azimuths", "--out", tmp_path)
    status, out, err = run("compare", "first", "second", *arguments)
    assert status == 0, err
    for name in ("first", "second"):
        result = json.loads((tmp_path / name / "novel_azimuths.json").read_text())
        assert result["command"] == f"capszoo evaluate {name} --protocol novel_azimuths"
        assert f"{name}: novel_azimuths: test error {result['value']:.2%}" in out


def test_every_protocol_is_listed_with_its_options(run):
    status, out, _ = run("protocols")
    assert status == 0
    for name, protocol in protocols().items():
        (line,) = (line for line in out.splitlines() if line.split()[:1] == [name])
        assert all(field.name in line for field in dataclasses.fields(protocol))


def test_what_does_not_fit_is_one_line_and_exit_status_1(run):
    for arguments in (
        ("evaluate", "first", "--protocol", "novel_elevations"),
        ("compare", "first", "first", "--protocol", "attack"),
        ("compare", "nowhere", "first", "--protocol", "viewpoints"),
        ("evaluate", "first", "--protocol", "viewpoints"),
        ("evaluate", "first", "--protocol", "sparsity"),
        ("evaluate", "first", "--set", "images=3"),
        ("evaluate", "first", "--protocol", "attack", "--set", "image=3"),
    ):
        status, _, err = run(*arguments)
        assert status == 1
        assert err.startswith("error: ")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "first", "--out", "file"), "a folder is needed. File exists: 'file'"),
        (
            ("evaluate", "first", "--json", "file/a.json"),
            "a folder is needed. File exists: 'file'",
        ),
        (("evaluate", "first", "--json", "first"), "--json is a folder, and a file is needed: first"),
        (("evaluate", "first", "--protocol", "tset_error"), "unknown protocol 'tset_error'"),
        (("evaluate", "first", "--protocol", "sparsity"), "'sparsity'"),
        (("compare", "first", "second", "--protocol", "tset_error"), "unknown protocol 'tset_error'"),
        (("compare", "first", "second", "--protocol", "sparsity"), "'sparsity'"),
        (("compare", "first", "first", "--protocol", "test_error", "--out", "new"), "different names"),
        (("evaluate", "first", "--set", "images"), "--set is written option=value. Received: 'images'"),
    ],
)
def test_what_cannot_be_measured_is_known_before_anything_is(run, runs, monkeypatch, arguments, message):
    (runs / "file").write_text("")
    monkeypatch.setattr(Protocol, "measure", lambda *_, **__: pytest.fail("it was measured"))
    first = ("--protocol", "test_error") if "--protocol" in arguments else ()
    status, _, error = run(*arguments[:2], *first, *arguments[2:])
    assert status == 1
    assert message in error
    assert error.count("\n") == 1


def test_a_file_of_weights_is_in_the_command_that_is_recorded(run, tmp_path):
    weights = ("--weights", "second/best.safetensors")
    status, _, error = run(
        *("evaluate", "first", "--protocol", "test_error", *weights), *("--json", tmp_path / "result.json")
    )
    assert status == 0, error
    (result,) = json.loads((tmp_path / "result.json").read_text())
    assert result["command"] == f"capszoo evaluate first --protocol test_error {' '.join(weights)}"


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


@pytest.mark.slow
def test_sparsity_is_measured_and_drawn(run, digits, tmp_path):
    status, out, err = run(
        *("evaluate", digits / "sum", "--protocol", "sparsity", "--set", "images=3", "--set", "steps=2"),
        *("--out", tmp_path),
    )
    assert status == 0, err
    report = json.loads((tmp_path / "sparsity.json").read_text())
    assert (report["n"], report["steps"], report["penalty"]) == (3, 2, {"class_capsules": 1.0})
    for condition, measured in report["layers"]["class_capsules"].items():
        assert f"{measured['hoyer']:.3f}" in out, condition
    assert Image.open(tmp_path / "sparsity_inferred.png").width > 100


@pytest.mark.slow
def test_likelihoods_are_measured_and_samples_drawn(run, digits, tmp_path):
    arguments = ("--set", "images=4", "--set", "samples=2", "--out", tmp_path)
    status, out, err = run(
        "evaluate", digits / "attention", "--protocol", "likelihood_comparison", *arguments
    )
    assert status == 0, err
    report = json.loads((tmp_path / "likelihood_comparison.json").read_text())
    assert (report["n"], report["samples"]) == (4, 2)
    assert f"{report['gaussian']:.4f}" in out
    for name in ("parse", "samples"):
        assert Image.open(tmp_path / f"likelihood_comparison_{name}.png").width > 100


@pytest.mark.slow
def test_latent_optimisation_is_measured_beside_the_networks_inference_and_drawn(run, digits, tmp_path):
    arguments = ("--set", "images=4", "--set", "steps=3", "--set", "max_angle=90", "--out", tmp_path)
    status, out, err = run(
        "evaluate", digits / "probabilistic", "--protocol", "latent_optimisation", *arguments
    )
    assert status == 0, err
    report = json.loads((tmp_path / "latent_optimisation.json").read_text())
    assert (report["n"], report["steps"], report["max_angle"]) == (4, 3, 90)
    for condition in ("upright", "turned"):
        assert f"{report['network'][condition]['loss']:.1f}" in out
        assert f"{report['optimised'][condition]['error']:.1%}" in out
        assert Image.open(tmp_path / f"latent_optimisation_{condition}.png").width > 100


@pytest.mark.slow
def test_networks_with_and_without_routing_are_compared(run, digits, tmp_path):
    status, out, err = run(
        *("compare", digits / "sum", digits / "routed", "--protocol", "routing_comparison"),
        *("--out", tmp_path),
    )
    assert status == 0, err
    assert "no routing, decoder " in out
    assert "0.66%" in out
    errors = json.loads((tmp_path / "routing_comparison.json").read_text())["errors"]
    assert {condition: error["paper"] for condition, error in errors.items()} == {
        "no routing, decoder": 0.0066,
        "routing, decoder": 0.0077,
    }
