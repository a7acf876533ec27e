"""The command line does what a user types, and says in one line what a user can mend."""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from tiny import draw_bars

import capszoo
from capszoo.cli import measuring
from capszoo.cli import zoo as cli_of_zoo
from capszoo.cli.tables import comparison_table
from capszoo.config import ConfigError
from capszoo.data import ArraySplit, DataNotFound
from capszoo.training.weight_files import read_arrays, write_arrays
from capszoo.zoo.presets import get_preset
from capszoo.zoo.recipes import named


@pytest.fixture
def pictures(tmp_path):
    """Paths of ten pictures of the size that the model takes."""
    images, _ = draw_bars(10, 5)
    paths = [tmp_path / f"{i}.png" for i in range(10)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


def test_list_prints_every_preset_and_json_is_json(zoo, run):
    status, out, _ = run("list")
    assert status == 0
    assert "tiny_mnist10" in out
    assert "(no weights)" in out
    assert run("list", "nothing*") == (0, "", "no preset is such\n")
    rows = json.loads(run("list", "--json", "--pretrained")[1])
    assert list(rows) == ["tiny_mnist"]
    assert rows["tiny_mnist"]["metrics"][0]["n"] == 100


def test_a_long_list_has_a_row_for_each_file_of_the_weights(zoo, run):
    status, out, _ = run("list", "--long", "--pretrained")
    assert status == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["tiny_mnist", "weights.safetensors"],
        ["tiny_mnist", "check.safetensors"],
    ]


def test_the_version_is_the_packages(run):
    assert run("--version") == (0, f"{capszoo.__version__}\n", "")


def test_describe_prints_the_card(zoo, run):
    _, out, _ = run("describe", "tiny_mnist")
    assert out.strip() == (zoo / "README.md").read_text().strip()


def test_evaluate_prints_the_cards_number_beside_the_papers(zoo, run, tmp_path):
    card = json.loads((zoo / "card.json").read_text())
    file = tmp_path / "not yet there" / "result.json"
    status, out, _ = run("evaluate", "tiny_mnist", "--json", file)
    assert status == 0
    assert "paper 0.25%" in out
    (result,) = json.loads(file.read_text())
    assert result["value"] == card["metrics"][0]["value"]
    assert result["command"] == "capszoo evaluate tiny_mnist --protocol test_error"


@pytest.mark.parametrize(("asked", "expected"), [((), 0), (("probe_rotated_45", "test_error"), 1)])
def test_evaluate_measures_what_there_are_data_for(zoo, run, tmp_path, monkeypatch, asked, expected):
    measure = measuring._measure

    def without_digits(verb, subjects, name, *arguments):
        if name == "probe_rotated_45":
            raise DataNotFound("its digits are in none of these folders")
        return measure(verb, subjects, name, *arguments)

    subject = measuring.trained("tiny_mnist")
    card = dataclasses.replace(subject.recipe.card, protocols={"probe_rotated_45": 0.2, "test_error": 0.0025})
    subject = dataclasses.replace(subject, recipe=dataclasses.replace(subject.recipe, card=card))
    monkeypatch.setattr(measuring, "trained", lambda *_: subject)
    monkeypatch.setattr(measuring, "_measure", without_digits)
    words = [word for name in asked for word in ("--protocol", name)]
    status, out, errors = run("evaluate", "tiny_mnist", *words, "--json", tmp_path / "result.json")
    assert status == expected
    assert "probe_rotated_45: its digits are in none of these folders" in (errors if asked else out)
    (result,) = json.loads((tmp_path / "result.json").read_text())
    assert result["protocol"] == "test_error"


def test_compare_shows_cards_and_measures_the_same_again(zoo, run):
    card = json.loads((zoo / "card.json").read_text())
    number = f"{card['metrics'][0]['value']:.2%}"
    status, out, _ = run("compare", "tiny_mnist")
    assert status == 0
    (row,) = (line for line in out.splitlines() if line.split()[:1] == ["tiny"])
    assert row.split()[1] == number
    assert row.split()[-2:] == ["0.25%", "mnist"]
    again = run("compare", "tiny_mnist", "--again")[1]
    assert again.splitlines()[-1] == row
    assert "test_error: test error" in again


def test_more_measurements_than_architectures_make_the_rows_of_a_comparison():
    card = SimpleNamespace(trained_on="mnist")

    def measured(architecture):
        preset = SimpleNamespace(name=f"{architecture}_mnist", dataset="mnist", outside=None, card=card)
        return preset, [
            SimpleNamespace(
                protocol=protocol,
                data="turned" if protocol == "third" else "mnist",
                value=value,
                interval=(0.0, 1.0),
                paper=0.5,
                text=lambda number: f"{number:.0%}",
            )
            for protocol, value in (("first", 0.1), ("second", 0.2), ("third", 0.3))
            if (architecture, protocol) != ("vae", "second")
        ]

    def rows(*architectures):
        table = comparison_table([measured(architecture) for architecture in architectures])
        return [list(column.cells) for column in table.columns]

    first, value, paper, other, _ = rows("capsules", "vae")
    assert first == ["first, mnist", "second, mnist", "third, turned"]
    assert value == ["10% (0% to 100%)", "20% (0% to 100%)", "30% (0% to 100%)"]
    assert paper == ["50% mnist", "50% mnist", "50% turned"], "the paper's of what is measured"
    assert other == ["10% (0% to 100%)", "", "30% (0% to 100%)"]
    assert rows("a", "b", "c")[0] == ["a", "b", "c"]


def test_what_has_no_weights_cannot_be_compared(zoo, run):
    status, _, err = run("compare", "tiny_mnist", "tiny_mnist9")
    assert status == 1
    assert err.strip() == "error: tiny_mnist9 has no weights, so nothing was measured."


def test_a_run_without_a_card_is_described_and_compared_by_a_protocol(zoo, published, run, tmp_path):
    folder = published / "run"
    assert "name: dynamic" in run("describe", folder)[1]
    status, _, err = run("compare", folder)
    assert status == 1
    assert err.strip() == f"error: {folder} was not measured: give --protocol, e.g. --protocol test_error."
    assert run("compare", folder, "tiny_mnist", "--protocol", "test_error", "--out", tmp_path / "a")[0] == 0
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["run", "tiny_mnist"]
    status, _, err = run("compare", folder, folder, "--protocol", "test_error", "--out", tmp_path / "b")
    assert status == 1
    assert "--out needs models of different names. Received: run, run" in err
    (folder / "card.json").write_bytes((zoo / "card.json").read_bytes())
    status, _, err = run("measure-again", folder)
    (folder / "card.json").unlink()
    assert (status, "has no weights in the package to measure" in err) == (1, True)


def test_runs_of_one_name_have_a_row_each(zoo, tmp_path):
    preset = get_preset("tiny_mnist")
    runs = [dataclasses.replace(preset, name="pets", run=tmp_path / place / "pets") for place in "ab"]
    table = comparison_table([(each, preset.card.metrics) for each in runs])
    assert list(table.columns[0].cells) == [str(each.run) for each in runs]


def test_other_classes_than_the_datas_are_not_counted_as_errors(zoo):
    model = capszoo.load("tiny_mnist", class_names=["a", "b"])
    with pytest.raises(ConfigError, match=r"has images of 10 classes\. Received: a model of 2"):
        capszoo.evaluate(model)


def test_predict_names_classes_and_draws(zoo, run, pictures, tmp_path):
    status, out, _ = run("predict", *pictures, "--model", "tiny_mnist", "--out", tmp_path / "drawn.png")
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines()[:10]] == [path.name for path in pictures]
    assert np.asarray(Image.open(tmp_path / "drawn.png")).std() > 0


def test_a_folder_stands_for_the_pictures_in_it(zoo, run, pictures, tmp_path):
    (tmp_path / "about.txt").write_text("no picture")
    (tmp_path / "._0.png").write_bytes(b"nor this")
    one_by_one = run("predict", *pictures, "--model", "tiny_mnist")
    assert run("predict", tmp_path, "--model", "tiny_mnist") == one_by_one
    (tmp_path / "empty").mkdir()
    for command in (("predict",), ("visualize", "--out", tmp_path / "page")):
        status, out, err = run(*command, tmp_path / "empty", "--model", "tiny_mnist")
        assert (status, out) == (1, "")
        assert f"no pictures in {tmp_path / 'empty'}" in err


def test_of_many_pictures_the_first_are_drawn(zoo, run, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(cli_of_zoo, "DRAWN", 2)
    status, out, _ = run("predict", *pictures[:5], "--model", "tiny_mnist", "--out", tmp_path / "drawn.png")
    assert status == 0
    assert out.splitlines()[5:] == [f"drawn: {tmp_path / 'drawn.png'}, the first 2 of 5 pictures"]
    status, out, _ = run("visualize", *pictures[:5], "--model", "tiny_mnist", "--out", tmp_path / "page")
    assert status == 0
    assert all(line.endswith(", the first 2 of 5 pictures") for line in out.splitlines())


@pytest.mark.parametrize("name", ["drawn", ".", "drawn.xyz"])
def test_a_drawing_needs_the_name_of_a_file(zoo, run, pictures, tmp_path, name):
    status, out, err = run("predict", *pictures, "--model", "tiny_mnist", "--out", tmp_path / name)
    assert (status, out) == (1, "")
    assert "--out must be the file of a picture, such as drawn.png" in err
    assert not list(tmp_path.glob("drawn*"))


def test_a_picture_of_the_wrong_shape_is_refused_with_both_shapes(zoo, run, tmp_path):
    Image.new("L", (40, 30)).save(tmp_path / "wide.png")
    status, _, err = run("predict", tmp_path / "wide.png", "--model", "tiny_mnist")
    assert status == 1
    assert "28" in err
    assert "40" in err
    assert run("predict", tmp_path / "wide.png", "--model", "tiny_mnist", "--resize")[0] == 0


def test_a_file_that_is_no_picture_is_one_line_of_error(zoo, run, tmp_path):
    (tmp_path / "no.png").write_bytes(b"\x89PNG but not really")
    status, out, err = run("predict", tmp_path / "no.png", "--model", "tiny_mnist")
    assert (status, out) == (1, "")
    assert len(err.strip().splitlines()) == 1
    assert "no.png" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "tiny_mnist", "train.epoch=3"), "did you mean 'epochs'"),
        (("train", "tiny_mnist", "model.routing=dynamik"), "did you mean 'dynamic'"),
        (("train", "tny_mnist"), "did you mean 'tiny_mnist"),
        (("evaluate", "tiny_mnist", "--protocol", "test_eror"), "did you mean 'test_error'"),
        (("evaluate", "tiny_mnist", "--protocol", "expanded_mnist"), "(40, 40, 1)"),
        (("list", "--routing", "em"), "no preset has 'em'"),
        (("describe", "nothing"), "unknown preset"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_right(zoo, run, arguments, message):
    status, _, err = run(*arguments)
    assert status == 1
    assert message in err
    assert err.count("\n") == 1


def test_the_folder_of_a_run_is_trained_where_it_is(zoo, published, run, tmp_path, monkeypatch):
    shutil.copytree(published / "run", tmp_path / "elsewhere" / "mine")
    monkeypatch.chdir(tmp_path)
    status, out, err = run("train", "elsewhere/mine")
    assert status == 0, err
    assert "run folder: elsewhere/mine" in out
    assert not (tmp_path / "runs").exists()


def test_a_run_with_a_presets_name_is_meant_by_its_path(zoo, published, run, tmp_path, monkeypatch):
    shutil.copytree(published / "run", tmp_path / "tiny_mnist")
    monkeypatch.chdir(tmp_path)
    assert capszoo.get_preset("tiny_mnist").run is None
    assert capszoo.get_preset("./tiny_mnist").run == Path("tiny_mnist")
    assert [named(Path(name)) for name in ("./tiny_mnist", "runs/tiny_mnist")] == [
        "./tiny_mnist",
        "runs/tiny_mnist",
    ]
    exported = []

    def export(model, out, **_):
        exported.append(model.preset.run)
        return {"files": {}, "deviations": {}}

    monkeypatch.setattr(capszoo, "export", export)
    run("export", "./tiny_mnist", "--out", tmp_path / "models")
    assert exported == [Path("tiny_mnist")]


def test_of_a_run_whose_images_have_changed_it_is_said(zoo, published, run, tmp_path, monkeypatch):
    """What it was trained on may be among the test images now."""
    monkeypatch.setattr(measuring, "_measure", lambda *_: (SimpleNamespace(to_mapping=dict), [], []))
    assert run("evaluate", published / "run")[2] == ""
    folder = tmp_path / "pets"
    shutil.copytree(published / "run", folder)
    arrays, metadata = read_arrays(folder / "checkpoint.safetensors")
    write_arrays(folder / "checkpoint.safetensors", arrays, metadata | {"images": "others"})
    status, _, err = run("evaluate", folder)
    assert status == 0
    assert f"{folder} was trained on other images than those that are there now" in err
    (folder / "checkpoint.safetensors").write_bytes(b"damaged")
    assert run("evaluate", folder)[::2] == (0, "")


def test_pictures_that_a_run_was_trained_on_need_not_be_readable_to_measure_it(
    zoo, published, run, tmp_path, monkeypatch
):
    def unreadable(self):
        raise ValueError("one.png: not a picture")

    monkeypatch.setattr(measuring, "_measure", lambda *_: (SimpleNamespace(to_mapping=dict), [], []))
    monkeypatch.setattr(ArraySplit, "fingerprint", unreadable)
    assert run("evaluate", published / "run")[::2] == (0, "")


def test_a_wrong_protocol_is_said_before_the_others_are_measured(zoo, run, tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "_measure", lambda *_: pytest.fail("measured"))
    status, _, err = run("evaluate", "tiny_mnist", "--protocol", "test_error", "--protocol", "test_eror")
    assert status == 1
    assert "did you mean 'test_error'" in err


def test_damaged_weights_end_every_command_that_needs_them(zoo, run, pictures, tmp_path):
    path = zoo / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    for arguments in (
        ("evaluate", "tiny_mnist"),
        ("predict", pictures[0], "--model", "tiny_mnist"),
        ("export", "tiny_mnist", "--out", tmp_path / "models"),
    ):
        status, _, err = run(*arguments)
        assert status == 1
        assert "bytes expected" in err
    assert not (tmp_path / "models").exists()


def test_missing_data_say_how_to_get_them(zoo, run, monkeypatch, tmp_path):
    monkeypatch.setenv("CAPSZOO_DATA_DIR", str(tmp_path / "empty"))
    status, _, err = run("train", "tiny_mnist", "data.name=fashion_mnist", "--out", tmp_path / "run")
    assert status == 1
    assert "TFDS_DATA_DIR" in err
    assert "CAPSZOO_DATA_DIR" in err


@pytest.mark.slow
def test_export_shows_that_all_artefacts_agree(zoo, run, tmp_path):
    status, out, _ = run("export", "tiny_mnist", "--out", tmp_path / "models")
    assert status == 0
    assert "litert-float16" in out
    bundle = tmp_path / "models" / "tiny_mnist" / "1"
    assert (bundle / "saved_model.pb").is_file()
    assert (bundle / "assets.extra" / "labels.txt").read_text().split() == list("0123456789")
    status, _, err = run("export", "tiny_mnist", "--out", tmp_path / "models")
    assert status == 1
    assert "next free version is 2" in err
