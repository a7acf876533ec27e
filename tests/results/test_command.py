"""`capszoo reproduce` lists, makes and writes, with tables of a user's own too."""

import json

import pytest

from capszoo import plugins
from capszoo.results import figures, page

RECIPE = """\
model: {name: cnn, channels: [3, 4], hidden: 8}
data: {name: mnist, validation: 50}
train: {epochs: 1, batch_size: 50, checkpoint_steps: 3}
card: {title: tiny, routing: none, reference: none, protocols: {test_error: null}}
"""


@pytest.fixture
def reproduce(run, tables, tmp_path, monkeypatch):
    """`reproduce(*arguments)` with the user's own tables; drawings and the zoo's numbers are left out."""
    monkeypatch.setattr(figures, "captions", lambda results: {})
    monkeypatch.setattr(page, "published", lambda: tmp_path / "nowhere")
    return lambda *arguments: run("reproduce", tables, "--out", tmp_path / "out", *arguments)


def test_the_list_shows_every_cell_with_its_state(reproduce, trained):
    _, out, _ = reproduce("--list")
    lines = {line.split("  ")[0].strip(): line for line in out.splitlines()}
    assert "1 missing" in lines["long"]
    assert "2 h" in lines["long"]
    assert "quoted" in lines["quoted"]
    assert "1 waiting" in lines["ends"]
    assert "hinton" not in out
    assert not trained


def test_without_scipy_nothing_is_shown_before_the_error(reproduce, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, out, err = reproduce("--list")
    assert (status, out) == (1, "")
    assert err == "error: scipy is not installed. It comes with: pip install 'capszoo[train]'\n"


def test_the_list_knows_what_the_zoo_measured_itself(run, tmp_path):
    _, out, _ = run("reproduce", "viewpoints_azimuth", "--list", "--out", tmp_path / "out")
    assert "1 measured" in out
    assert "missing" not in out


def test_it_makes_a_users_tables_and_writes_the_page(reproduce, trained, tmp_path):
    status, _, _ = reproduce("--docs", tmp_path / "docs")
    assert status == 0
    assert len(trained) == 5
    text = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert "25.00% (24.00% to 26.00%)" in text
    assert 0 < text.index("## A paper") < text.index("Table 1: ablations"), (
        "the zoo's own stay, behind the user's"
    )
    assert len(json.loads((tmp_path / "docs" / "results.json").read_text(encoding="utf-8"))) == 5
    assert "2 measured" in reproduce("--list")[1]


def test_a_file_in_the_place_of_the_pages_folder_is_seen_before_anything_is_trained(
    reproduce, trained, tmp_path
):
    (tmp_path / "docs").touch()
    status, _, err = reproduce("--docs", tmp_path / "docs")
    assert (status, trained) == (1, [])
    assert "a folder is needed" in err


def test_the_page_says_how_to_make_a_users_tables(reproduce, tables, tmp_path):
    reproduce("--hours", "0")
    text = (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    assert f"`capszoo reproduce {tables}`." in text
    assert "`capszoo reproduce hinton_1`." in text


def test_the_page_says_which_plugins_were_imported(reproduce, tables, tmp_path, monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, "this")
    reproduce("--hours", "0")
    text = (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    assert f"`capszoo --import this reproduce {tables}`." in text


def test_a_file_without_tables_is_not_the_zoos(reproduce, tables, trained):
    tables.write_text("{paper: Mine, tables: {}}", encoding="utf-8")
    status, _, err = reproduce()
    assert (status, trained) == (1, [])
    assert "no tables in" in err


def test_without_hours_it_only_writes(reproduce, trained, tmp_path):
    reproduce("--hours", "0")
    assert not trained
    assert "about 2 h" in (tmp_path / "out" / "results.md").read_text(encoding="utf-8")


def test_what_failed_is_said_at_the_end(reproduce, trained, monkeypatch):
    from capszoo.results import queue

    def fails(*_, **__):
        raise FileNotFoundError("no data")

    monkeypatch.setattr(queue, "train", fails)
    status, _, err = reproduce()
    assert status == 1
    assert "first: long, seed 0: no data" in err


@pytest.mark.slow
def test_a_training_that_is_killed_goes_on_and_its_number_stands_in_the_page(
    data, run, tmp_path, monkeypatch
):
    """Real trainings of two epochs on the tiny MNIST."""
    from capszoo.results import queue

    (tmp_path / "tiny_mnist.yaml").write_text(RECIPE, encoding="utf-8")
    cells = f"{{cell: {{recipe: {tmp_path / 'tiny_mnist.yaml'}, overrides: [train.epochs=2], hours: 1}}}}"
    table = tmp_path / "own.yaml"
    table.write_text(f"paper: P\ntables: {{own: {{title: T, cells: {cells}}}}}\n", encoding="utf-8")
    command = ("reproduce", table, "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        advances = iter([False] * 4 + [True] * 100)
        patch.setattr(queue.Limited, "advance", lambda *_: next(advances) and _out_of_time())
        run(*command)
    assert len(list((tmp_path / "out").glob("*/run/checkpoint.safetensors"))) == 1
    assert not list((tmp_path / "out").glob("*/*.json"))
    status, _, err = run(*command)
    assert status == 0, err
    (path,) = (tmp_path / "out").glob("*/test_error.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert (record["steps"], record["measurement"]["n"]) == (10, 100)
    assert len(record["curve"]) == 2
    assert f"{record['measurement']['value']:.2%}" in (tmp_path / "out" / "results.md").read_text(
        encoding="utf-8"
    )


def _out_of_time():
    from capszoo.results.queue import OutOfTime

    raise OutOfTime
