"""The speed of published presets is measured on an idle machine only, and stands in their cards."""

import dataclasses
import shutil

import pytest

import capszoo
from capszoo.benchmarking import machine, published, record_speeds
from capszoo.zoo import locating, recipes
from capszoo.zoo.card import read_card

NAME = "kernel_mnist"


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A folder of weights with one preset, and an idle machine."""
    shutil.copytree(locating.weights_folder() / NAME, tmp_path / NAME)
    monkeypatch.setattr(locating, "weights_folder", lambda: tmp_path)
    monkeypatch.setattr(machine.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    return tmp_path


class Steps:
    """A network whose steps take no time."""

    def __init__(self, recipe, variant, precision):
        self.training_step = self.inference_step = lambda size: lambda: None


def test_a_card_gets_the_speed_and_keeps_all_else(weights, monkeypatch):
    monkeypatch.setattr(published, "Network", Steps)
    measured = iter([400.0, 1600.0])
    monkeypatch.setattr(published, "_images_per_second", lambda step, seconds: next(measured))
    before = read_card(weights / NAME / "card.json")
    (speed,) = record_speeds([NAME], 0.0).values()
    after = read_card(weights / NAME / "card.json")
    assert (after.speed.training, after.speed.inference, after.speed.batch) == (400.0, 1600.0, 32)
    assert after == dataclasses.replace(before, speed=speed)
    assert "CPUs" in speed.processor
    said = "400 images/s in training, 1,600 in inference, 32 images a batch"
    assert f"| speed | {said}; {speed.processor} |" in (weights / NAME / "README.md").read_text("utf-8")


def test_a_former_name_is_that_of_its_preset(weights, monkeypatch):
    monkeypatch.setattr(published, "Network", Steps)
    monkeypatch.setattr(published, "_images_per_second", lambda step, seconds: 400.0)
    monkeypatch.setitem(recipes.FORMER_NAMES, "old_mnist", NAME)
    with pytest.warns(FutureWarning, match="is called 'kernel_mnist' now"):
        assert list(record_speeds(["old_mnist"], 0.0)) == [NAME]
    assert [path.name for path in weights.iterdir()] == [NAME]


def test_a_busy_machine_is_refused(weights, monkeypatch):
    monkeypatch.setattr(machine.os, "getloadavg", lambda: (1e6, 0.0, 0.0))
    with pytest.raises(ValueError, match=r"idle machine\. Its load is 1000000\.0"):
        record_speeds([NAME])


def test_presets_without_weights_are_refused_before_any_is_measured(weights, monkeypatch):
    monkeypatch.setattr(published, "Network", None)
    without = next(n for n in capszoo.list_models() if n not in capszoo.list_models(pretrained=True))
    with pytest.raises(ValueError, match=f"with weights in the package are needed. Received: {without}"):
        record_speeds([NAME, without])


@pytest.mark.slow
def test_a_real_network_is_measured_in_both_works(weights):
    speed = record_speeds([NAME], 0.0)[NAME]
    # Without its gradient a network is faster than with it.
    assert 1.5 * speed.training < speed.inference
