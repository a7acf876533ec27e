"""A table of tiny trainings, and trainings and measurements that take no time."""

import pytest

from capszoo.data import Eth80, Mnist
from capszoo.protocols.measurement import Measurement
from capszoo.results import queue
from capszoo.results.tables import read_paper
from capszoo.results.trials import Results

RECIPE = """\
model: {{name: {model}}}
data: {{name: {data}}}
train: {{epochs: 1}}
card: {{title: tiny, routing: none, reference: none, protocols: {{test_error: 0.5}}}}
"""
TABLES = """\
paper: A paper
tables:
  first:
    title: A table
    cells:
      long: {{recipe: {cnn}, hours: 2, paper: 0.1}}
      short: {{recipe: {cnn}, overrides: [train.epochs=2], hours: 1, paper: 0.2, seeds: [0, 1]}}
      quoted: {{paper: 0.3}}
  second:
    title: Another
    cells:
      ends: {{recipe: {em}, stops_at: begins, hours: 0.1}}
      begins: {{recipe: {em}, overrides: [train.epochs=3], hours: 3, protocol: novel_azimuths}}
"""


@pytest.fixture
def tables(tmp_path):
    """The file of two tables."""
    paths = {}
    for name, model, data in (("cnn", "cnn", "mnist"), ("em", "cnn", "eth80, views: familiar azimuth")):
        paths[name] = tmp_path / f"{name}_tiny.yaml"
        paths[name].write_text(RECIPE.format(model=model, data=data), encoding="utf-8")
    path = tmp_path / "tables.yaml"
    path.write_text(TABLES.format(**paths), encoding="utf-8")
    return path


@pytest.fixture
def results(tables):
    """The tables without any number."""
    return Results([read_paper(tables)], [])


def measurement(recipe, protocol, value=0.25):
    """A number as a protocol gives it."""
    return Measurement(
        protocol=protocol,
        metric="test error",
        value=value,
        interval=(value - 0.01, value + 0.01),
        wrong=round(1000 * value),
        n=1000,
        data=recipe.data.section_name,
        split="test",
        fingerprint="0" * 64,
        paper=None,
        seeds=1,
        command="",
        date="2026-01-01",
        revision="0.1.0",
        backend="none",
    )


@pytest.fixture
def trained(monkeypatch):
    """The runs that are trained, `(epochs, seed, folder)` each; seed 1 errs more than seed 0 by 0.1."""
    runs = []

    def train(recipe, run, progress, find):
        runs.append((recipe.train.epochs, recipe.train.seed, run))
        run.mkdir(parents=True, exist_ok=True)
        (run / "best.safetensors").touch()
        progress.advance()

    def evaluate(model, recipe, protocol, command, progress):
        return measurement(recipe, protocol, 0.25 + 0.1 * recipe.train.seed)

    # What is measured on is looked for before.
    for data_set in (Mnist, Eth80):
        monkeypatch.setattr(data_set, "open", lambda data, split: None)
    monkeypatch.setattr(queue, "train", train)
    monkeypatch.setattr(queue, "load_best", lambda recipe, run: (None, {}))
    monkeypatch.setattr(queue, "trainable_parameters", lambda model: 7)
    monkeypatch.setattr(queue, "trained_hours", lambda recipe, run: (100, 0.5, ((0.25, 0.4), (0.5, 0.3))))
    monkeypatch.setattr(queue, "evaluate", evaluate)
    return runs
