"""Tables are data: every cell of the zoo's names a recipe and a protocol that fit, and a broken one is refused."""

import json
import shlex

import pytest
from tiny import RECIPE

from capszoo.config import ConfigError
from capszoo.models.architecture import require
from capszoo.protocols import NumberProtocol, get_protocol
from capszoo.results.page import gather
from capszoo.results.records import published
from capszoo.results.tables import read_paper, read_papers, select
from capszoo.results.trials import Results
from capszoo.zoo.presets import get_preset
from capszoo.zoo.recipes import read_recipe

PAPERS = read_papers()
NAMES = [name for paper in PAPERS for name in paper.tables]


@pytest.fixture(scope="module")
def zoo():
    """The zoo's tables without any measured number."""
    return Results(PAPERS, [])


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_has_a_recipe_and_a_protocol_that_measures_it(zoo, name):
    for cell in zoo.tables()[name].cells.values():
        assert isinstance(get_protocol(cell.protocol), NumberProtocol)
    for trial in zoo.trials(name):
        recipe, protocol = zoo.recipe(trial), get_protocol(trial.cell.protocol)
        if recipe is None:
            assert zoo.state(trial, "nowhere") == "waiting"
            continue
        require(recipe.model, protocol.role, name)
        assert protocol.data(recipe).image_shape == recipe.data.image_shape
        assert trial.cell.hours > 0, "nobody knows what it costs"
        assert recipe.train.seed == trial.seed


@pytest.mark.parametrize("name", NAMES)
def test_the_command_beside_a_number_makes_the_same_training(name):
    results = gather(PAPERS, "nowhere", published())
    for trial in results.trials(name):
        words = shlex.split(results.command(trial))
        if words[1] == "train" and results.recipe(trial):
            recipe, *overrides, _, run = words[2 : words.index("&&")]
            assert words[words.index("&&") + 1 :][:3] == ["capszoo", "evaluate", run]
            # Another training would be refused in the folder.
            assert run == f"runs/{results.key(trial)}"
            again, trained = read_recipe(recipe, overrides), results.recipe(trial)
            for part in ("model", "data", "train", "stages"):
                assert getattr(again, part) == getattr(trained, part)


@pytest.mark.parametrize("name", NAMES)
def test_errors_of_papers_are_shares(zoo, name):
    for title, cell in zoo.tables()[name].cells.items():
        assert cell.paper is None or 0 < cell.paper < 1, title
        assert cell.paper or cell.note or cell.recipe, title


def test_what_the_papers_give_for_a_preset_is_in_its_card_too(zoo):
    """The same number in two places is the same."""
    compared = 0
    for trial in (trial for name in NAMES for trial in zoo.trials(name)):
        protocols = zoo.recipe(trial).card.protocols if zoo.recipe(trial) else {}
        written = protocols.get(trial.cell.protocol)
        if not trial.cell.overrides and None not in (written, trial.cell.paper) and not trial.cell.note:
            assert trial.cell.paper == written, trial
            compared += 1
    assert compared > 20


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("stops_at: begins", "stops_at: beginz", r"ends\.stops_at: unknown cell; did you mean 'begins'"),
        (
            "stops_at: begins",
            "stops_at: ends",
            r"ends\.stops_at: a cell .* without an end of its own is needed",
        ),
        ("stops_at: begins", "stops_at: begins, seeds: [0, 1]", r"ends\.stops_at: .* with the same seeds"),
        (
            "protocol: novel_azimuths",
            "protocol: likelihood",
            r"ends\.stops_at: .* a share of wrong images is needed",
        ),
        ("begins: {recipe: ", "begins: {note: ", r"ends\.stops_at: a cell with a recipe"),
        ("quoted: {paper", "quoted: {hours: 1, paper", "a cell without recipe is only quoted"),
        ("title: Another", "titel: Another", r"unknown key; did you mean 'title'"),
        (
            "seeds: [0, 1]",
            "seeds: []",
            r"short\.seeds: one or more different seeds are needed\. Received: \[\]",
        ),
        ("seeds: [0, 1]", "seeds: [0, 0]", r"short\.seeds: one or more different seeds"),
        ("seeds: [0, 1]", "seeds: [0, -1]", r"short\.seeds: seeds from 0 on are needed"),
        ("[train.epochs=2]", "['train.seed = 2']", r"short\.overrides: .* one of `seeds`, not train\.seed"),
        ("hours: 2", "hours: -2", r"long\.hours: a number from 0 on is needed\. Received: -2"),
        ("hours: 2", "hours: .inf", r"long\.hours: a number from 0 on is needed\. Received: inf"),
        ("[train.epochs=2]", "[train.seed=2]", r"short\.overrides: .* one of `seeds`, not train\.seed"),
        ("hours: 2", "protocol: attack", r"long\.protocol: 'attack' gives a report, and a cell has a number"),
        ("paper: 0.3", "protocol: test_eror", r"quoted: .*unknown protocol.* did you mean 'test_error'"),
        ("paper: 0.3", "paper: 30", r"quoted\.paper: a share, from 0 to 1, is needed\. Received: 30"),
        ("hours: 2", "hours: long", r"hours: expected float\. Received: 'long'"),
    ],
)
def test_a_broken_file_is_refused_by_its_key(tables, before, after, message):
    tables.write_text(tables.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"tables\.yaml: .*{message}"):
        read_paper(tables)


def test_an_override_that_no_recipe_has_names_its_cell(tables):
    tables.write_text(tables.read_text(encoding="utf-8").replace("[train.epochs=2]", "[train.epoch=2]"))
    results = Results([read_paper(tables)], [])
    with pytest.raises(ConfigError, match=r"^first: short, seed 0: .*train\.epoch: unknown key"):
        results.state(results.trials("first")[1], "nowhere")


def test_other_seeds_of_a_preset_are_those_of_its_stages_too(tables):
    """As `capszoo train PRESET train.seed=1` has it, which stands beside the number."""
    text = tables.read_text(encoding="utf-8").replace(
        "long: {recipe: ", "stages: {recipe: scae_mnist, seeds: [0, 1]}\n      long: {recipe: "
    )
    tables.write_text(text, encoding="utf-8")
    results = Results([read_paper(tables)], [])
    published, other = (trial for trial in results.trials("first") if trial.name == "stages")
    assert results.published_card(published)
    assert results.recipe(other) == read_recipe("scae_mnist", ["train.seed=1"])
    assert {stage.train.seed for stage in results.recipe(other).stages} == {1}


def test_two_tables_of_one_name_are_refused(tables):
    with pytest.raises(ConfigError, match="another table 'first'"):
        read_papers([tables, tables])


def test_a_recipe_lies_beside_the_table_that_names_it(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine.yaml").write_text(RECIPE, encoding="utf-8")
    recipes = {"beside": "mine.yaml", "named": str(tmp_path / "mine.yaml"), "preset": "vae_mnist"}
    cells = {name: {"recipe": recipe} for name, recipe in recipes.items()}
    written = {"paper": "P", "tables": {"t": {"title": "T", "cells": cells}}}
    (tmp_path / "t.yaml").write_text(json.dumps(written), encoding="utf-8")
    monkeypatch.chdir(tmp_path / "elsewhere")
    *_, paper = read_papers(["../t.yaml"])
    results = Results([paper], [])
    beside, named, preset = results.trials("t")
    assert results.recipe(beside) == results.recipe(named) == read_recipe("../mine.yaml", ["train.seed=0"])
    assert results.recipe(preset).name == "vae_mnist"


def test_a_preset_may_have_its_former_name_in_a_table_of_ones_own(tmp_path):
    cells = {"preset": {"recipe": "learned_em_mnist"}}
    written = {"paper": "P", "tables": {"t": {"title": "T", "cells": cells}}}
    (tmp_path / "t.yaml").write_text(json.dumps(written), encoding="utf-8")
    with pytest.warns(FutureWarning, match="is called 'consensus_em_mnist' now"):
        *_, paper = read_papers([tmp_path / "t.yaml"])
    results = Results([paper], [])
    assert results.published_card(*results.trials("t")) == get_preset("consensus_em_mnist").card


def test_a_file_that_is_not_there_is_one_of_tables(tmp_path):
    with pytest.raises(ConfigError, match="no such file of tables: "):
        read_papers([tmp_path / "mine.yaml"])


def test_an_unknown_table_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match="unknown table 'hinton_7'; did you mean 'hinton_"):
        select(PAPERS, ["hinton_7"])


def test_overrides_reach_the_chosen_tables_only(tables):
    papers, chosen = select([read_paper(tables)], ["first"], ["data.shift=0"])
    results = Results(papers, [])
    assert chosen == {"first"}
    assert results.recipe(results.trials("first")[0]).data.shift == 0
    (begins,) = (trial for trial in results.trials("second") if trial.name == "begins")
    assert begins.overrides == begins.cell.overrides == ("train.epochs=3",)


def test_overrides_of_the_command_line_come_after_those_of_cells(tables):
    papers, _ = select([read_paper(tables)], ["first"], ["train.epochs=7"])
    results = Results(papers, [])
    assert {results.recipe(trial).train.epochs for trial in results.trials("first")} == {7}
