"""The page is a function of tables, cards and records: the one in `docs/` is what they give now."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from capszoo.results import figures, page, queue
from capszoo.results.page import gather, render, row_of, rows_above, state_rows, write
from capszoo.results.queue import work
from capszoo.results.records import measured_in, read_records, write_records
from capszoo.results.tables import Cell, Paper, Table, read_papers
from capszoo.results.trials import Results
from capszoo.training.files import Busy, locked
from capszoo.zoo.card import Speed
from capszoo.zoo.presets import get_preset
from tests.results.conftest import measurement

DOCS = Path(__file__).parents[2] / "docs"


def of_cells(**cells):
    return Results([Paper("A paper", {"table": Table("A table", cells)})], [])


def test_the_page_in_docs_is_what_cards_and_records_say():
    written = (DOCS / "results.md").read_text(encoding="utf-8")
    again = "after publishing or measuring: capszoo reproduce --hours 0 --docs docs"
    assert written == render(gather(read_papers(), "nowhere", DOCS)), again


def test_its_figures_are_there():
    results = gather(read_papers(), "nowhere", DOCS)
    assert figures.captions(results)
    for name in figures.captions(results):
        assert (DOCS / f"{name}.png").stat().st_size > 0


def test_a_cell_that_is_a_preset_has_the_number_of_its_card():
    results = of_cells(cell=Cell(recipe="lstm_mnist", paper=0.0053, hours=1, seeds=(0, 1)))
    (card,) = (metric for metric in get_preset("lstm_mnist").card.metrics if metric.protocol == "test_error")
    first, second = results.trials("table")
    assert (results.state(first, "nowhere"), results.state(second, "nowhere")) == ("published", "missing")
    row = row_of(results, "table", "cell")
    assert row["ours"].startswith(card.text(card.value))
    assert (row["paper"], row["seeds"], row["how"]) == (
        "0.53%",
        "1 of 2; the rest about 1 h",
        f"`{card.command}` (published)",
    )


def test_a_mean_is_told_by_a_training_that_gave_one_of_its_numbers(results, trained, tmp_path):
    work(results, ["first"], tmp_path)
    first, second = (trial for trial in results.trials("first") if trial.name == "short")
    assert row_of(results, "first", "short")["how"] == f"`{results.command(first)}`"
    del results.records[results.record(first).key, first.cell.protocol]
    assert row_of(results, "first", "short")["how"] == f"`{results.command(second)}`"


def test_of_two_numbers_of_one_training_the_one_of_the_later_day_counts(results, trained, tmp_path):
    work(results, ["first"], tmp_path / "out")
    (record, *_) = results.records.values()
    later = dataclasses.replace(
        record, measurement=dataclasses.replace(record.measurement, value=0.125, date="2999-01-01")
    )
    write_records(tmp_path / "docs", [later])
    records = gather(results.papers, tmp_path / "out", tmp_path / "docs").records.values()
    assert [each.measurement.value for each in records if each.key == record.key] == [0.125]


def test_what_another_command_has_written_beside_the_page_meanwhile_stays(results, trained, tmp_path):
    mine = gather(results.papers, "nowhere", tmp_path / "docs")
    work(results, ["first"], tmp_path / "out")
    write(results, tmp_path / "docs")
    write(mine, tmp_path / "docs")
    assert {record.key for record in read_records(tmp_path / "docs")} >= {key for key, _ in results.records}


def test_who_writes_the_page_waits_for_the_other_who_does(results, tmp_path, monkeypatch):
    """Both read the ledger before they write it: at once, one would lose the other's numbers."""
    monkeypatch.setattr(page, "LONG", 0.1)
    with locked(tmp_path, "busy"), pytest.raises(Busy, match=r"has been writing in .* for long"):
        write(results, tmp_path)
    write(results, tmp_path)


def test_what_a_killed_command_left_beside_the_page_is_swept(results, tmp_path):
    left = tmp_path / f".results.json.{'0' * 32}"
    left.touch()
    write(results, tmp_path)
    assert not left.exists()


def test_one_training_that_is_missing_for_two_cells_costs_its_hours_once(results, trained, tmp_path):
    first, cell = results.tables()["first"], results.tables()["first"].cells["long"]
    cells = {"long": cell, "azimuths": dataclasses.replace(cell, protocol="novel_azimuths")}
    both = Results(
        [dataclasses.replace(results.papers[0], tables={"first": dataclasses.replace(first, cells=cells)})],
        [],
    )
    assert [row["cost"] for row in state_rows(both, "first", "nowhere")] == ["about 2 h", 'with "long"']
    assert row_of(both, "first", "azimuths")["ours"] == 'not afforded yet, with "long"'
    work(results, ["first"], tmp_path)
    for record in measured_in(tmp_path):
        both.add(record)
    assert [row["cost"] for row in state_rows(both, "first", tmp_path)] == ["", "about 0.1 h"], "measuring"
    with locked(tmp_path / both.key(both.trials("first")[1]), "busy"):
        assert state_rows(both, "first", tmp_path)[1]["cost"] == "", "what runs elsewhere costs nothing here"
    # Its number alone is known, as from a ledger.
    assert [row["cost"] for row in state_rows(both, "first", "nowhere")] == ["", "about 2 h"]


def test_published_numbers_above_the_papers_are_listed():
    (card,) = (metric for metric in get_preset("lstm_mnist").card.metrics if metric.protocol == "test_error")
    papers = {"below": card.value - 1e-4, "equal": card.value, "above": card.value + 1e-4, "none": None}
    cells = {name: Cell(recipe="lstm_mnist", paper=paper) for name, paper in papers.items()}
    trained = Cell(recipe="lstm_mnist", overrides=("train.epochs=1",), paper=0.0)
    rows = rows_above(of_cells(**cells, trained=trained, quoted=Cell(paper=0.0)))
    assert [row["cell"] for row in rows] == ["below"]
    assert rows[0]["preset"] == "[lstm_mnist](notes.md#lstm_mnist)"


def test_the_notes_say_what_was_tried_with_every_preset_above_its_paper():
    notes = (DOCS / "notes.md").read_text(encoding="utf-8").splitlines()
    for row in rows_above(gather(read_papers(), "nowhere", DOCS)):
        preset = row["preset"].split("]")[0].strip("[")
        assert f"## {preset}" in notes


@pytest.mark.parametrize(
    ("cell", "how", "hours"),
    [
        (Cell(recipe="lstm_mnist", overrides=("train.epochs=1",), hours=1), "train", 1),
        # Published weights have only to be measured.
        (Cell(recipe="lstm_mnist", protocol="expanded_mnist", hours=1), "evaluate", 0.1),
        # Its weights were trained on the twin.
        (Cell(recipe="matrix_em_smallnorb", hours=1), "train", 1),
    ],
)
def test_a_card_speaks_for_nothing_else(cell, how, hours):
    results = of_cells(cell=cell)
    assert [results.state(trial, "nowhere") for trial in results.trials("table")] == ["missing"]
    row = row_of(results, "table", "cell")
    assert row["ours"] == f"not afforded yet, about {hours:g} h"
    assert row["how"].startswith(f"`capszoo {how} {cell.recipe}")


def test_what_a_table_lays_over_its_recipes_is_another_training_unless_it_is_the_cards_data():
    cell = Cell(recipe="cnn_smallnorb", hours=1)
    states = []
    for overrides in (("data.name=synthnorb",), ("data.name=synthnorb", "data.views=familiar azimuth")):
        results = Results(
            [Paper("A paper", {"table": Table("A table", {"cell": cell}, overrides=overrides)})], []
        )
        (trial,) = results.trials("table")
        states.append(results.state(trial, "nowhere"))
    assert states == ["published", "missing"]


def test_several_trainings_are_a_mean_with_its_deviation_and_interval(results, trained, tmp_path):
    work(results, ["first"], tmp_path)
    row = row_of(results, "first", "short")
    # Student's quantile for two values is 12.7; a share is not negative.
    assert row["ours"] == f"30.00% ± {np.std([0.25, 0.35], ddof=1):.2%} (0.00% to {0.3 + 12.7062 * 0.05:.2%})"
    assert (row["seeds"], row["hours"], row["data"]) == ("2", "1.0", "mnist, n=1,000")


def test_a_mean_over_two_versions_of_the_images_says_so(results, trained, tmp_path, monkeypatch):
    def evaluate(model, recipe, name, **_):
        fingerprint = str(recipe.train.seed) * 64
        return dataclasses.replace(measurement(recipe, name), fingerprint=fingerprint)

    monkeypatch.setattr(queue, "evaluate", evaluate)
    work(results, ["first"], tmp_path)
    assert row_of(results, "first", "short")["data"] == "mnist (2 versions), n=1,000"
    assert row_of(results, "first", "long")["data"] == "mnist, n=1,000"


def test_rows_of_different_versions_of_the_images_say_which(results, trained, tmp_path, monkeypatch):
    def evaluate(model, recipe, name, **_):
        return dataclasses.replace(measurement(recipe, name), fingerprint=str(recipe.train.epochs) * 64)

    monkeypatch.setattr(queue, "evaluate", evaluate)
    work(results, ["first"], tmp_path)
    assert row_of(results, "first", "short")["data"] == "mnist (images 22222222), n=1,000"
    assert row_of(results, "first", "long")["data"] == "mnist (images 11111111), n=1,000"


def test_a_cell_that_somebody_begins_with_meanwhile_has_no_cost(results, monkeypatch):
    seen = []

    def state(self, trial, folder):
        seen.append(trial)
        return "missing" if seen.count(trial) == 1 else "running"

    monkeypatch.setattr(Results, "state", state)
    assert [row["cost"] for row in state_rows(results, "first", "somewhere")] == [""] * 3


def test_a_note_of_several_lines_is_one_row(results):
    table = results.tables()["first"]
    cell = dataclasses.replace(table.cells["long"], note="folded\nby YAML\n")
    table = dataclasses.replace(table, cells={"long": cell})
    page = render(Results([dataclasses.replace(results.papers[0], tables={"first": table})], []))
    assert "| long (folded by YAML) | 10% |" in page


def test_trainings_that_agree_have_no_interval(results, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(queue, "evaluate", lambda model, recipe, name, **_: measurement(recipe, name, 0.5))
    work(results, ["first"], tmp_path)
    assert row_of(results, "first", "short")["ours"] == "50.00% ± 0.00%"


@pytest.mark.parametrize(
    ("hours", "cost"), [(1999.5, "about 2,000 h"), (12.0, "about 12 h"), (0.0, "not estimated")]
)
def test_costs_are_read_without_exponents(results, hours, cost):
    cell = dataclasses.replace(results.tables()["first"].cells["long"], hours=hours)
    assert row_of(of_cells(long=cell), "table", "long")["ours"].endswith(cost)


def test_hours_on_an_accelerator_are_said_to_be_and_not_drawn_among_those_of_cpus(
    results, trained, tmp_path, monkeypatch
):
    monkeypatch.setattr(queue, "load_best", lambda recipe, run: (None, {"accelerator": "a GPU"}))
    work(results, ["first"], tmp_path)
    assert row_of(results, "first", "short")["hours"] == "1.00 on a GPU"
    axes = figures.draw(results)["results_time"].axes
    assert not any("tiny" in text.get_text() for each in axes for text in each.texts)


def test_what_begins_from_weights_of_an_accelerator_has_no_hours_of_cpus(results, monkeypatch):
    published = results.published()
    on_gpu = dataclasses.replace(published["dynamic_mnist_sum"], accelerator="a GPU")
    monkeypatch.setattr(results, "published", lambda: published | {"dynamic_mnist_sum": on_gpu})
    (mnist,) = (a for a in figures.draw(results)["results_time"].axes if a.get_title() == "mnist")
    names = {text.get_text() for text in mnist.texts}
    assert not names & {"dynamic_mnist_sum", "predictive_coding_mnist"}
    assert "lstm_mnist" in names


def test_a_quoted_cell_has_no_number_and_no_cost(results):
    row = row_of(results, "first", "quoted")
    assert (row["paper"], row["ours"], row["how"]) == ("30%", "only quoted", "")
    (shown,) = (row for row in state_rows(results, "first", "nowhere") if row["cell"] == "quoted")
    assert (shown["state"], shown["cost"]) == ("quoted", "")


def test_what_was_measured_is_drawn(results, trained, tmp_path):
    work(results, ["first"], tmp_path / "out")
    paths = write(results, tmp_path / "docs")
    assert {path.name for path in paths} == {"results.md", "results_time.png", "results_costs.png"}
    axes = figures.draw(results)["results_time"].axes
    (mnist,) = (each for each in axes if each.get_title() == "mnist")
    # "long" is a recipe as it stands; "short" changes it.
    (curve,) = (line for line in mnist.lines if len(line.get_xdata()) > 1)
    np.testing.assert_allclose(curve.get_xydata(), [[0.25, 40], [0.5, 30]])
    assert [text.get_text() for text in mnist.texts if "tiny" in text.get_text()] == ["cnn_tiny"]


def test_what_begins_from_other_weights_has_their_hours_too(results):
    presets = results.published()
    (mnist,) = (a for a in figures.draw(results)["results_time"].axes if a.get_title() == "mnist")
    places = {round(float(line.get_xdata()[0]), 9) for line in mnist.lines}
    first, second = presets["dynamic_mnist_sum"].hours, presets["predictive_coding_mnist"].hours
    assert second > 0
    assert {round(first, 9), round(first + second, 9)} <= places


def test_an_error_of_zero_has_no_place_on_a_logarithmic_axis(results, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(
        queue, "evaluate", lambda model, recipe, *_, **__: measurement(recipe, "test_error", 0.0)
    )
    work(results, ["first"], tmp_path / "out")
    for figure in figures.draw(results).values():
        assert not [t for axes in figure.axes for t in axes.texts if "tiny" in t.get_text()]


def test_a_training_of_no_measurable_time_has_none_either(results, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(queue, "trained_hours", lambda recipe, run: (100, 0.0, ()))
    work(results, ["first"], tmp_path / "out")
    for axes in figures.draw(results)["results_time"].axes:
        assert not [text for text in axes.texts if "tiny" in text.get_text()]


def test_routings_are_drawn_against_parameters_and_against_the_speeds_in_cards(results, monkeypatch):
    speed = Speed(training=400.0, inference=1600.0, batch=32, processor="a processor", libraries="")
    elsewhere = dataclasses.replace(speed, processor="another processor")
    # The autoencoder has no test error, and so no place in the figure.
    monkeypatch.setattr(Results, "speeds", lambda self: {"lstm_mnist": speed, "vae_mnist": elsewhere})
    caption = figures.captions(results)["results_costs"]
    assert "a processor" in caption
    assert "another" not in caption
    card = get_preset("lstm_mnist").card
    (error,) = (100 * metric.value for metric in card.metrics if metric.protocol == "test_error")
    places = {"parameters": card.parameters, "images/s in training": 400, "images/s in inference": 1600}
    panels = [axes for axes in figures.draw(results)["results_costs"].axes if axes.get_title() == "mnist"]
    assert [axes.get_xlabel() for axes in panels] == list(places)
    for axes in panels:
        points = [tuple(line.get_xydata()[0]) for line in axes.lines]
        assert (places[axes.get_xlabel()], error) in points
        # Without a speed a preset stands in the first panel only.
        assert (len(points) > 1) == (axes.get_xlabel() == "parameters")


def test_a_table_is_bars_beside_the_papers_where_one_is_ours(results, trained, tmp_path):
    table = dataclasses.replace(results.tables()["first"])
    bars = Results([Paper("A paper", {figures.BARS: table})], [])
    assert f"results_{figures.BARS}" not in figures.captions(bars)
    work(bars, [figures.BARS], tmp_path)
    (axes,) = figures.draw(bars)[f"results_{figures.BARS}"].axes
    papers, ours = ([patch.get_height() for patch in container] for container in axes.containers)
    np.testing.assert_allclose(papers, [10, 20, 30])
    np.testing.assert_allclose(ours, [25, 30])
