"""The command line measures runs of the tiny nets as it does presets."""

import json
import sys

import numpy as np
import pytest
from PIL import Image
from tiny_norb import read_pairs

from capszoo import cli
from capszoo.data import smallnorb
from capszoo.recipes import read_recipe
from capszoo.training import train


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
                f"train.seed={seed}",
                "train.epochs=1",
            ]
            train(read_recipe(recipe_folder / "tiny_cnn.yaml", overrides), root / name)
    return root


@pytest.fixture
def run(monkeypatch, capsys, runs):
    """`run(*arguments)` -> (exit status, standard output, standard error), in the folder of the runs."""
    monkeypatch.chdir(runs)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["capszoo", *map(str, arguments)])
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = end.code
        output = capsys.readouterr()
        return status or 0, output.out, output.err

    return call


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
