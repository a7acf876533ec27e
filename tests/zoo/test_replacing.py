"""Whoever looks for a preset finds it whole, the old one or the new one, whatever happens to the one who publishes."""

import dataclasses
import os
import sys

import filelock
import pytest
from support import full_disk

import capszoo
from capszoo.benchmarking import published
from capszoo.config import ConfigError
from capszoo.exporting import recording
from capszoo.training.weight_files import WeightsError, read_arrays, write_arrays
from capszoo.zoo import loading, publishing, recipes
from capszoo.zoo.card import Speed, WeightFile, read_card, write_card
from capszoo.zoo.integrity import sha256_of
from capszoo.zoo.locating import CHECK, WEIGHTS, find_file, hashed_name
from capszoo.zoo.publishing import publish
from capszoo.zoo.replacing import replace, replacing_preset, update_card

FILES = {"card.json", "README.md", WEIGHTS, CHECK, ".lock"}
CHANGES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}


def put(folder, title, write):
    """Publishes what `write(path)` writes, with the card that is there but for its title."""
    card = read_card(folder / "card.json")
    with replacing_preset(folder) as new:
        for file in (WEIGHTS, CHECK):
            write(new / file)
        files = {f: WeightFile(sha256_of(new / f), (new / f).stat().st_size, "float32") for f in card.files}
        replace(folder, dataclasses.replace(card, title=title, files=files))


def put_text(folder, title):
    put(folder, title, lambda path: path.write_text(f"{title} {path.name}"))


def found(name):
    """The title of the preset; its files are those that belong to it."""
    preset = capszoo.get_preset(name)
    for file in (WEIGHTS, CHECK):
        assert find_file(preset, file).read_text() == f"{preset.card.title} {file}"
    return preset.card.title


def put_until(folder, title, number):
    """`put_text` in a process that is gone before it changes the folder for the `number`th time; whether it ended."""
    child = os.fork()
    if child == 0:
        left = [number]

        def count(event, arguments):
            if event in CHANGES and any(str(folder) in str(each) for each in arguments):
                left[0] -= 1
                if left[0] < 0:
                    os._exit(1)

        sys.addaudithook(count)
        put_text(folder, title)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_killed_before_any_change_of_the_folder_it_leaves_a_whole_preset(zoo):
    put_text(zoo, "old")
    seen = []
    for number in range(1000):
        ended = put_until(zoo, "new", number)
        seen.append(found("tiny_mnist"))
        put_text(zoo, "old")  # nothing that was left behind is in the way, and nothing stays
        assert {path.name for path in zoo.iterdir()} == FILES
        if ended:
            break
    first_new = seen.index("new")
    assert seen == ["old"] * first_new + ["new"] * (len(seen) - first_new)
    assert 5 < first_new < len(seen) - 3, "it was killed before and after the switch"


def test_a_preset_that_is_replaced_while_it_is_loaded_is_loaded_whole(zoo, monkeypatch):
    stored = {file: read_arrays(zoo / file)[0] for file in (WEIGHTS, CHECK)}

    def replaced_in_between(preset, file):
        monkeypatch.setattr(loading, "find_file", find_file)
        put(zoo, "new", lambda path: write_arrays(path, stored[path.name], {"preset": "new"}))
        return find_file(preset, file)

    monkeypatch.setattr(loading, "find_file", replaced_in_between)
    model = capszoo.load("tiny_mnist")
    assert model.preset.card.title == "new"


def test_a_file_that_gets_its_published_name_while_it_is_loaded_is_loaded(zoo, monkeypatch):
    hashed = {f: zoo / hashed_name(f, sha256_of(zoo / f)) for f in (WEIGHTS, CHECK)}
    for file, path in hashed.items():
        (zoo / file).rename(path)

    def renamed_afterwards(preset, file):
        path = find_file(preset, file)
        if path == hashed[file]:
            path.rename(zoo / file)
        return path

    monkeypatch.setattr(loading, "find_file", renamed_afterwards)
    assert capszoo.load("tiny_mnist").output["scores"].shape == (None, 10)
    assert not any(path.exists() for path in hashed.values())


def test_two_processes_do_not_publish_the_same_preset_at_once(zoo, published):
    before = (zoo / "card.json").read_bytes()
    with filelock.FileLock(zoo / ".lock"), pytest.raises(ConfigError, match="another process is publishing"):
        publish(recipes.read_recipe("tiny_mnist"), published / "run", zoo.parent)
    assert (zoo / "card.json").read_bytes() == before


@pytest.mark.parametrize(
    ("part", "option", "kept"),
    [
        ("model", {}, True),
        ("data", {"shift": 1}, True),
        ("model", {"num_iterations": 2}, False),
        ("data", {"pad": 2}, False),
        ("model", {"former": 2}, False),
    ],
)
def test_new_weights_keep_the_speed_that_was_measured_of_the_same_network(zoo, published, part, option, kept):
    card, speed = read_card(zoo / "card.json"), Speed(7.0, 9.0, 32, "a processor", "libraries")
    earlier = {**card.recipe, part: card.recipe[part] | option}
    write_card(dataclasses.replace(card, speed=speed, recipe=earlier), zoo)
    assert publish(recipes.read_recipe("tiny_mnist"), published / "run", zoo.parent).speed == (
        speed if kept else None
    )


def test_a_first_publication_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), replacing_preset(tmp_path / "a"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_anything_else_is_refused_and_stays(zoo, published, tmp_path, run):
    (tmp_path / "tiny_mnist").mkdir()
    (tmp_path / "tiny_mnist" / "picture.png").write_bytes(b"own")
    status, _, error = run("publish", "tiny_mnist", "--run", published / "run", "--out", tmp_path)
    assert status == 1
    assert "tiny_mnist holds no preset but other files, such as picture.png" in error
    assert [path.name for path in (tmp_path / "tiny_mnist").iterdir()] == ["picture.png"]


@pytest.mark.parametrize("dtype", ["int4", "float64", "bfloat16"])
def test_weights_are_stored_as_what_they_can_be_loaded_from(zoo, published, run, dtype):
    before = {path: path.read_bytes() for path in zoo.iterdir()}
    status, _, error = run("publish", "tiny_mnist", "--run", published / "run", "--dtype", dtype)
    assert status == 1
    assert f"dtype: weights are stored as float16, float32, int8. Received: '{dtype}'" in error
    assert {path: path.read_bytes() for path in zoo.iterdir()} == before


def test_on_a_full_disk_the_old_preset_stays(zoo, published):
    before = {path: path.read_bytes() for path in zoo.iterdir()}
    with full_disk(1000), pytest.raises(OSError, match=r"File too large: '.*weights\.safetensors'"):
        publish(recipes.read_recipe("tiny_mnist"), published / "run", zoo.parent)
    assert {path: path.read_bytes() for path in zoo.iterdir()} == before


def test_weights_that_rounding_has_spoilt_are_not_published(zoo, published, monkeypatch):
    """Here it rounds to zero."""
    before = (zoo / "card.json").read_bytes()
    save, build = publishing.save_weights, recipes.read_recipe("tiny_mnist").build

    def rounded(_, *arguments):
        model = build()
        model.set_weights([0 * weight for weight in model.get_weights()])
        save(model, *arguments)

    monkeypatch.setattr(publishing, "save_weights", rounded)
    with pytest.raises(WeightsError, match=r"scores of the weights stored as float16 differ by up to"):
        publish(recipes.read_recipe("tiny_mnist"), published / "run", zoo.parent)
    assert (zoo / "card.json").read_bytes() == before


def test_a_card_is_written_again_for_the_files_that_it_was_measured_with(zoo):
    card = read_card(zoo / "card.json")
    assert update_card(zoo, card.files, date="2026-02-02") == dataclasses.replace(card, date="2026-02-02")
    put_text(zoo, "new")
    with pytest.raises(ConfigError, match="tiny_mnist has been published anew meanwhile"):
        update_card(zoo, card.files, date="2026-03-03")
    with replacing_preset(zoo), pytest.raises(ConfigError, match="another process is publishing"):
        update_card(zoo, read_card(zoo / "card.json").files, date="2026-03-03")
    assert read_card(zoo / "card.json").date == "2026-02-02"


def measured_again(monkeypatch, meanwhile):
    monkeypatch.setattr(publishing, "_require_committed", lambda _: None)
    monkeypatch.setattr(publishing, "_measure", lambda *_: meanwhile() or [])
    publishing.measure_again(capszoo.get_preset("tiny_mnist"))


def speed_recorded(monkeypatch, meanwhile):
    monkeypatch.setattr(published, "busy", lambda _: False)
    monkeypatch.setattr(published, "_images_per_second", lambda *_: meanwhile())
    published.record_speeds(["tiny_mnist"])


def exports_recorded(monkeypatch, meanwhile):
    monkeypatch.setattr(recording, "_finish_withdrawal", lambda _: None)
    monkeypatch.setattr(recording, "verify", lambda _: {})
    monkeypatch.setattr(recording, "artefact_files", lambda _: {})
    monkeypatch.setattr(recording, "runners", lambda _: meanwhile() or {})
    recording.record_exports(capszoo.get_preset("tiny_mnist"), "bundle")


@pytest.mark.parametrize("record", [measured_again, speed_recorded, exports_recorded])
def test_what_was_measured_of_replaced_weights_is_not_said_of_the_new_ones(zoo, monkeypatch, record):
    card = []

    def replaced():
        put_text(zoo, "new")
        card.append((zoo / "card.json").read_bytes())

    with pytest.raises(ConfigError, match="tiny_mnist has been published anew meanwhile"):
        record(monkeypatch, lambda: card or replaced())
    assert (zoo / "card.json").read_bytes() == card[0]
