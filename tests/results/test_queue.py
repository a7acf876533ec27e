"""The queue makes what is missing, the cheapest first; numbers stay, and so does what a killed training has reached."""

import contextlib
import dataclasses
import json
import re
import threading

import filelock
import pytest
import tensorflow as tf
from support import Recorded

import capszoo
from capszoo.config import ConfigError
from capszoo.results import queue
from capszoo.results.page import state_rows, write
from capszoo.results.queue import work
from capszoo.results.records import key_of, measured_in, read_records, write_records
from capszoo.results.tables import read_paper
from capszoo.results.trials import Results
from capszoo.training.files import locked
from tests.results.conftest import measurement


def states(results, table, folder):
    return [results.state(trial, folder) for trial in results.trials(table)]


def test_the_cheapest_is_made_first_and_nothing_twice(results, trained, tmp_path):
    assert states(results, "first", tmp_path) == ["missing"] * 3
    assert work(results, ["first"], tmp_path / "out") == []
    assert [run[:2] for run in trained] == [(2, 0), (2, 1), (1, 0)]
    assert states(results, "first", tmp_path / "out") == ["measured"] * 3
    # Nor by another process, which knows the folder alone.
    again = Results(results.papers, measured_in(tmp_path / "out"))
    work(again, ["first"], tmp_path / "out")
    assert len(trained) == 3


def test_of_what_costs_as_much_another_cell_comes_before_another_seed(tables, trained, tmp_path):
    text = tables.read_text(encoding="utf-8").replace("hours: 2, paper: 0.1", "hours: 1, seeds: [0, 1]")
    tables.write_text(text, encoding="utf-8")
    work(Results([read_paper(tables)], []), ["first"], tmp_path / "out")
    assert [run[:2] for run in trained] == [(1, 0), (2, 0), (1, 1), (2, 1)]


def test_the_code_that_a_number_names_is_that_of_the_start(results, trained, tmp_path, monkeypatch):
    """Not what is committed while it trains."""
    before = []
    monkeypatch.setattr(queue.provenance, "revision", lambda: before.append(len(trained)))
    work(results, ["first"], tmp_path)
    assert before[0] == 0


def test_a_number_is_kept_with_the_papers_and_what_it_cost(results, trained, tmp_path):
    work(results, ["first"], tmp_path)
    (record,) = (r for r in measured_in(tmp_path) if r.recipe["train"]["epochs"] == 1)
    assert (record.steps, record.hours, record.parameters) == (100, 0.5, 7)
    assert record.measurement.paper == 0.1
    assert record.curve == ((0.25, 0.4), (0.5, 0.3))


def test_a_training_that_another_number_ends_waits_for_it(results, trained, tmp_path):
    assert states(results, "second", tmp_path) == ["waiting", "missing"]
    work(results, ["second"], tmp_path)
    assert [run[0] for run in trained] == [3, 1]
    ends, _ = results.trials("second")
    train = results.recipe(ends).train
    assert (train.stop_at_error, train.stop_split) == (0.25, "test")


def test_a_training_at_which_another_machine_is_runs_and_is_passed_over(results, trained, tmp_path):
    long, *_ = results.trials("first")
    with locked(tmp_path / key_of(results.recipe(long)), "busy"):
        assert states(results, "first", tmp_path) == ["running", "missing", "missing"]
        work(results, ["first"], tmp_path)
    assert [run[0] for run in trained] == [2, 2]
    assert states(results, "first", tmp_path) == ["missing", "measured", "measured"]


def test_a_training_in_whose_own_folder_somebody_is_runs_as_well(results, trained, tmp_path):
    long, *_ = results.trials("first")
    with locked(tmp_path / results.key(long) / "run", "busy"):
        assert states(results, "first", tmp_path) == ["running", "missing", "missing"]
        assert work(results, ["first"], tmp_path) == []
    assert [run[0] for run in trained] == [2, 2]


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ("likelihood", "protocol 'likelihood' needs an architecture"),
        ("novel_azimuths", "familiar azimuth"),
    ],
)
def test_what_no_number_can_be_of_is_not_trained(protocol, message, tables, trained, tmp_path):
    text = tables.read_text(encoding="utf-8").replace("hours: 2", f"hours: 2, protocol: {protocol}")
    tables.write_text(text, encoding="utf-8")
    results = Results([read_paper(tables)], [])
    (failed,) = work(results, ["first"], tmp_path / "out")
    assert message in failed
    assert [run[0] for run in trained] == [2, 2]
    assert len(measured_in(tmp_path / "out")) == 2, "and what others read is as it was"


def test_what_another_machine_has_measured_meanwhile_is_taken_over(results, trained, tmp_path):
    other = Results(results.papers, [])
    work(other, ["first"], tmp_path)
    assert work(results, ["first"], tmp_path) == []
    assert len(trained) == 3


def test_a_number_that_another_machine_makes_at_this_moment_is_no_failure(
    results, trained, tmp_path, monkeypatch
):
    """It is made here, where the other one leaves it, and is not made again where it is there."""
    long, *_ = results.trials("first")
    monkeypatch.setattr(
        Results,
        "state",
        lambda self, trial, folder: "missing" if trial == long and not self.record(trial) else "measured",
    )
    with contextlib.ExitStack() as other:
        other.enter_context(locked(tmp_path / results.key(long), "busy"))
        said = Recorded()
        said.say = lambda text: "another process" in text and other.close()
        assert work(results, ["first"], tmp_path, progress=said) == []
    assert len(trained) == 1
    # As far as this one knows it is missing.
    assert work(Results(results.papers, []), ["first"], tmp_path) == []
    assert len(trained) == 1


def test_a_number_of_weights_that_were_replaced_is_missing(results, trained, tmp_path, monkeypatch):
    cell = results.tables()["first"].cells["long"]
    begins = dataclasses.replace(cell, overrides=("train.start_from=cnn_smallnorb",))
    table = dataclasses.replace(results.tables()["first"], cells={"begins": begins})
    begun = Results([dataclasses.replace(results.papers[0], tables={"first": table})], [])
    work(begun, ["first"], tmp_path)
    assert states(begun, "first", tmp_path) == ["measured"]
    preset = capszoo.get_preset("cnn_smallnorb")
    files = {name: dataclasses.replace(file, sha256="0" * 64) for name, file in preset.card.files.items()}
    card = dataclasses.replace(preset.card, files=files)
    monkeypatch.setattr(begun, "_presets", lambda name: dataclasses.replace(preset, card=card))
    assert states(begun, "first", tmp_path) == ["missing"]
    work(begun, ["first"], tmp_path)
    assert len({run for *_, run in trained}) == 2, "a training of its own, not the former one's"


def test_when_the_hours_are_over_a_training_is_left_where_it_is(results, trained, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(queue.time, "monotonic", lambda: clock.__setitem__(0, clock[0] + 600) or clock[0])
    progress = Recorded()
    work(results, ["first"], tmp_path, hours=0.25, progress=progress)
    assert len(trained) == 1
    assert progress.said[-1].endswith("it goes on next time")
    run = trained[-1][2]
    monkeypatch.undo()
    assert not list(run.parent.glob("*.json"))


def test_a_failure_is_said_and_the_others_are_made(results, trained, tmp_path, monkeypatch):
    train = queue.train

    def fails(recipe, run, progress, find):
        if recipe.train.seed == 1:
            raise ArithmeticError("the loss stopped being finite")
        train(recipe, run, progress, find)

    monkeypatch.setattr(queue, "train", fails)
    failed = work(results, ["first"], tmp_path)
    assert failed == ["first: short, seed 1: the loss stopped being finite"]
    assert states(results, "first", tmp_path) == ["measured", "measured", "missing"]


def test_data_that_are_not_there_stop_no_other_number(tables, trained, tmp_path):
    recipe = tmp_path / "cnn_elsewhere.yaml"
    text = (tmp_path / "em_tiny.yaml").read_text(encoding="utf-8")
    recipe.write_text(re.sub(r"data: .*", "data: {name: tfds, set: nowhere}", text), encoding="utf-8")
    text = tables.read_text(encoding="utf-8")
    tables.write_text(
        text.replace("      quoted:", f"      away: {{recipe: {recipe}, hours: 0.1}}\n      quoted:")
    )
    results = Results([read_paper(tables)], [])
    (failed,) = work(results, ["first"], tmp_path / "out")
    assert failed.startswith("first: away, seed 0: the data set 'nowhere'")
    assert [run[0] for run in trained] == [2, 2, 1]
    assert states(results, "first", tmp_path / "out") == ["measured", "measured", "measured", "no data"]
    write(results, tmp_path / "page")
    assert "| away |  | no data, about 0.1 h |" in (tmp_path / "page" / "results.md").read_text(
        encoding="utf-8"
    )
    assert {row["state"] for row in state_rows(results, "first", tmp_path / "out")} >= {"1 no data"}


def test_a_number_that_is_none_is_not_written(results, trained, tmp_path, monkeypatch):
    def evaluate(model, recipe, protocol, **_):
        value = float("nan") if recipe.train.epochs == 1 else 0.25
        return dataclasses.replace(measurement(recipe, protocol), value=value)

    monkeypatch.setattr(queue, "evaluate", evaluate)
    (failed,) = work(results, ["first"], tmp_path)
    assert failed.startswith("first: long, seed 0: the number of first: long, seed 0.measurement.value")
    assert states(results, "first", tmp_path) == ["missing", "measured", "measured"]


@pytest.mark.parametrize(("options", "message"), [("", "has images of (40, 40, 1)"), (", pad: 6", "affNIST")])
def test_what_cannot_be_measured_is_not_trained(options, message, tables, trained, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSZOO_DATA_DIR", str(tmp_path))
    recipe = tmp_path / "cnn_tiny.yaml"
    text = recipe.read_text(encoding="utf-8").replace("name: mnist", f"name: mnist{options}")
    recipe.write_text(text, encoding="utf-8")
    text = tables.read_text(encoding="utf-8").replace("hours: 2,", "hours: 2, protocol: affnist,")
    tables.write_text(text, encoding="utf-8")
    (failed,) = work(Results([read_paper(tables)], []), ["first"], tmp_path / "out")
    assert failed.startswith("first: long, seed 0: ")
    assert message in failed
    assert [run[:2] for run in trained] == [(2, 0), (2, 1)]


def test_what_nobody_has_estimated_comes_last(tables, trained, tmp_path):
    tables.write_text(tables.read_text(encoding="utf-8").replace("hours: 1,", ""), encoding="utf-8")
    work(Results([read_paper(tables)], []), ["first"], tmp_path)
    assert [run[:2] for run in trained] == [(1, 0), (2, 0), (2, 1)]


def test_a_training_costs_what_the_cell_says_that_asks_most_for_it(results, trained, tmp_path, monkeypatch):
    # The crops of digits are none; what cannot be measured is not looked at here.
    monkeypatch.setattr(queue, "_require_number", lambda name, recipe: None)
    table = results.tables()["first"]
    crops = dataclasses.replace(table.cells["long"], protocol="test_error_multicrop", hours=0.1)
    table = dataclasses.replace(table, cells={"crops": crops, **table.cells})
    both = Results([dataclasses.replace(results.papers[0], tables={"first": table})], [])
    assert [both.hours(trial) for trial in both.trials("first")] == [2, 2, 1, 1]
    assert work(both, ["first"], tmp_path) == []
    assert [run[:2] for run in trained] == [(2, 0), (2, 1), (1, 0), (1, 0)], (
        "of which the last goes on from its end"
    )


def test_other_weights_to_begin_from_make_another_training(tables, tmp_path):
    weights = tmp_path / "start.safetensors"
    begun = tables.read_text(encoding="utf-8").replace(
        "hours: 2,", f"hours: 2, overrides: [train.start_from={weights}],"
    )
    tables.write_text(begun, encoding="utf-8")
    keys = []
    for content in (b"one", b"one", b"other"):
        weights.write_bytes(content)
        results = Results([read_paper(tables)], [])
        keys.append(results.key(results.trials("first")[0]))
    assert keys[0] == keys[1] != keys[2]


def test_stages_go_on_to_their_own_end(tables, trained, tmp_path):
    recipe = tmp_path / "em_tiny.yaml"
    recipe.write_text(
        recipe.read_text(encoding="utf-8") + "stages: {before: {train: {epochs: 2}}}\n", encoding="utf-8"
    )
    results = Results([read_paper(tables)], [])
    work(results, ["second"], tmp_path / "out")
    ended = results.recipe(results.trials("second")[0])
    assert (ended.train.stop_at_error, ended.train.stop_split) == (0.25, "test")
    (before,) = ended.stages
    assert (before.train.stop_at_error, before.train.stop_split) == (None, "validation")


def test_a_folder_that_may_not_be_looked_into_is_not_at_work(results, monkeypatch, tmp_path):
    def exists(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(tmp_path), "exists", exists)
    assert states(results, "first", tmp_path) == ["missing"] * 3
    assert [results.trained(trial, tmp_path) for trial in results.trials("first")] == [False] * 3


def test_who_only_looks_keeps_nobody_from_working(results, trained, tmp_path, monkeypatch):
    first, acquire = results.trials("first")[0], filelock.FileLock.acquire
    # On a busy machine what looks may take longer than anybody waits.
    monkeypatch.setattr(
        filelock.FileLock, "acquire", lambda self, timeout: acquire(self, timeout=100 * timeout)
    )
    with contextlib.ExitStack() as looks:
        looks.enter_context(locked(tmp_path / results.key(first), "busy"))
        threading.Timer(0.03, looks.pop_all().close).start()
        assert results.state(first, tmp_path) == "missing"


def test_of_two_numbers_of_one_training_the_later_one_counts_wherever_it_is_from(results, trained, tmp_path):
    work(results, ["first"], tmp_path)
    (early, *_) = measured_in(tmp_path)
    later = dataclasses.replace(early, measurement=dataclasses.replace(early.measurement, date="2026-06-01"))
    for records in ([early, later], [later, early]):
        (kept,) = Results(results.papers, records).records.values()
        assert kept == later
    again = Results(results.papers, [later])
    work(again, ["first"], tmp_path)
    assert later in again.records.values()


def test_a_training_that_failed_is_not_tried_for_another_number(results, trained, tmp_path, monkeypatch):
    tried = []

    def fails(recipe, run, progress, find):
        tried.append(run)
        raise ArithmeticError("the loss stopped being finite")

    monkeypatch.setattr(queue, "train", fails)
    long = results.tables()["first"].cells["long"]
    table = dataclasses.replace(
        results.tables()["first"],
        cells={"error": long, "several crops": dataclasses.replace(long, protocol="test_error_multicrop")},
    )
    # The crops of digits are none; what cannot be measured is not looked at here.
    monkeypatch.setattr(queue, "_require_number", lambda name, recipe: None)
    both = Results([dataclasses.replace(results.papers[0], tables={"first": table})], [])
    first, second = work(both, ["first"], tmp_path)
    assert len(tried) == 1
    assert first.endswith("the loss stopped being finite")
    assert second.endswith("has failed.")


def test_an_error_of_any_library_stops_no_other_number(results, trained, tmp_path, monkeypatch):
    error = tf.errors.ResourceExhaustedError(None, None, "out of memory")
    monkeypatch.setattr(queue, "evaluate", lambda *arguments, **options: (_ for _ in ()).throw(error))
    assert len(work(results, ["first"], tmp_path)) == 3


def test_another_number_of_published_weights_is_measured_on_them(trained, tmp_path, monkeypatch):
    path = tmp_path / "tables.yaml"
    path.write_text(
        "{paper: A paper, tables: {crops: {title: Crops, overrides: [data.name=synthnorb], cells: {crops: "
        "{recipe: cnn_smallnorb, protocol: test_error_multicrop, hours: 1}}}}}",
        encoding="utf-8",
    )
    results = Results([read_paper(path)], [])
    (trial,) = results.trials("crops")
    assert results.command(trial) == "capszoo evaluate cnn_smallnorb --protocol test_error_multicrop"
    monkeypatch.setattr(queue, "load", lambda name: None)
    assert work(results, ["crops"], tmp_path) == []
    assert not trained
    record, card = results.record(trial), capszoo.get_preset("cnn_smallnorb").card
    assert (record.steps, record.parameters) == (card.training["steps"], card.parameters)
    assert record.hours > 0, "those of the training, not of measuring"
    assert record.of(results.recipe(trial))


def test_a_number_that_is_not_readable_names_its_file(results, trained, tmp_path):
    work(results, ["first"], tmp_path)
    write_records(tmp_path / "page", measured_in(tmp_path))
    assert len(measured_in(tmp_path)) == len(list(tmp_path.glob("*/test_error.json")))
    path = next(tmp_path.glob("*/test_error.json"))
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match=path.parent.name):
        measured_in(tmp_path)


@pytest.mark.parametrize("text", ["null", "{}", "3"])
def test_a_ledger_that_is_no_list_is_named(text, tmp_path):
    (tmp_path / "results.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"results\.json: a list of records is needed"):
        read_records(tmp_path)


def test_a_training_whose_folder_cannot_be_locked_stops_no_other(results, trained, tmp_path):
    first, *_ = results.trials("first")
    (tmp_path / results.key(first) / ".lock").mkdir(parents=True)
    failed = work(results, ["first"], tmp_path)
    assert [line.startswith(str(first)) for line in failed] == [True]
    assert len(results.records) == 2


def test_other_files_in_the_common_folder_are_no_numbers(results, trained, tmp_path):
    work(results, ["first"], tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.json").write_text("{}", encoding="utf-8")
    assert len(measured_in(tmp_path)) == 3


def test_what_somebody_trains_a_stage_of_is_running(tmp_path):
    path = tmp_path / "tables.yaml"
    path.write_text(
        "{paper: A paper, tables: {stages: {title: Stages, cells: {seed: "
        "{recipe: scae_mnist, protocol: clusters, seeds: [7]}}}}}",
        encoding="utf-8",
    )
    results = Results([read_paper(path)], [])
    (trial,) = results.trials("stages")
    (stage, *_) = results.recipe(trial).stages
    with locked(tmp_path / results.key(trial) / "run" / "stages" / stage.name, "busy"):
        assert results.state(trial, tmp_path) == "running"
    assert results.state(trial, tmp_path) == "missing"


def test_two_numbers_of_one_training_are_measured_on_the_same_run(results, trained, tmp_path):
    cell = results.tables()["second"].cells["begins"]
    table = dataclasses.replace(
        results.tables()["second"],
        cells={"one": cell, "other": dataclasses.replace(cell, protocol="familiar_azimuths")},
    )
    both = Results([dataclasses.replace(results.papers[0], tables={"second": table})], [])
    work(both, ["second"], tmp_path)
    assert trained[0][2] == trained[1][2]
    assert sorted(path.name for path in trained[0][2].parent.glob("*.json")) == [
        "familiar_azimuths.json",
        "novel_azimuths.json",
    ]


def test_a_ledger_keeps_numbers_and_forgets_them_with_their_recipe(results, trained, tmp_path):
    work(results, ["first"], tmp_path / "out")
    write_records(tmp_path, results.records.values())
    again = Results(results.papers, read_records(tmp_path))
    assert states(again, "first", "nowhere") == ["measured"] * 3
    # An option that is newer than a record had its default then; another value than the default is another training.
    path = tmp_path / "results.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    for entry in entries:
        del entry["recipe"]["train"]["mixup"]
    path.write_text(json.dumps(entries), encoding="utf-8")
    assert states(Results(results.papers, read_records(tmp_path)), "first", "nowhere") == ["measured"] * 3
    for entry in entries:
        entry["recipe"]["model"]["dropout"] = 0.25
    path.write_text(json.dumps(entries), encoding="utf-8")
    assert states(Results(results.papers, read_records(tmp_path)), "first", "nowhere") == ["missing"] * 3


@pytest.mark.parametrize("override", ["train.seed=1", "model.dropout=0.4", "data.shift=1"])
def test_other_values_are_another_training(results, override, tmp_path):
    from capszoo.zoo.recipes import read_recipe

    path = tmp_path / "cnn_tiny.yaml"
    assert key_of(read_recipe(path, [override])) != key_of(read_recipe(path))
    assert key_of(read_recipe(path, ["data.shift=2"])) == key_of(read_recipe(path)), "the default"
