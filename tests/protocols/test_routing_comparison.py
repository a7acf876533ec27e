"""Models with and without routing and decoder, side by side."""

import json

import pytest
from tiny import write_mnist

from capszoo.config import ConfigError
from capszoo.protocols import RoutingProtocol, Subject
from capszoo.protocols.classification import OwnError
from capszoo.protocols.measurement import Measurement
from capszoo.protocols.routing_comparison import APPENDIX_A
from capszoo.zoo.recipes import parse_recipe


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """The tiny MNIST is the only one there is."""
    monkeypatch.setenv("CAPSZOO_DATA_DIR", str(write_mnist(tmp_path / "data")))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def subject(validation=50, **options):
    model = {"name": "predictive_coding", "channels": 4, "primary_types": 2, **options}
    recipe = parse_recipe("tiny", {"model": model, "data": {"name": "mnist", "validation": validation}})
    return Subject("tiny", recipe, recipe.build())


def test_every_condition_has_its_number_of_the_paper():
    conditions = [
        subject(routing=routing, decoder=decoder)
        for routing in ("dynamic", "sum")
        for decoder in (True, False)
    ]
    comparison = RoutingProtocol().measure(conditions)
    assert {name: measured.paper for name, measured in comparison.errors.items()} == APPENDIX_A
    assert all(measured.n == 100 for measured in comparison.errors.values())
    assert set(json.loads(comparison.to_json())["names"]) == set(APPENDIX_A)


def test_other_data_have_no_number_of_the_paper(monkeypatch):
    model = {"name": "predictive_coding", "channels": 4, "primary_types": 2}
    recipe = parse_recipe("tiny", {"model": model, "data": {"name": "fashion_mnist", "validation": 50}})
    number = {"value": 0.1, "interval": (0, 1), "wrong": 1, "n": 10, "data": "fashion_mnist", "split": "test"}
    made = {"seeds": 1, "command": "", "date": "", "revision": "", "backend": "", "fingerprint": ""}
    measured = Measurement(protocol="test_error", metric="test error", paper=0.2, **number, **made)
    monkeypatch.setattr(OwnError, "measure", lambda *arguments, **keywords: measured)
    (error,) = RoutingProtocol().measure([Subject("tiny", recipe, None)]).errors.values()
    assert error.paper is None


def test_two_models_of_one_condition_are_refused(monkeypatch):
    """Before the first is measured."""
    monkeypatch.setattr(OwnError, "measure", pytest.fail)
    with pytest.raises(ConfigError, match="Received two of 'no routing, decoder'"):
        RoutingProtocol().measure([subject(), subject(routing="mean")])


@pytest.mark.parametrize("routing", ["mean", "leaky"])
def test_what_the_paper_does_not_compare_has_no_number_of_it(routing):
    (error,) = RoutingProtocol().measure([subject(routing=routing)]).errors.values()
    assert error.paper is None


def test_models_of_different_data_are_refused():
    with pytest.raises(ConfigError, match="the same data"):
        RoutingProtocol().measure([subject(), subject(validation=40, decoder=False)])


def test_models_without_a_choice_of_decoder_are_refused():
    recipe = parse_recipe("x", {"model": {"name": "cnn"}, "data": {"name": "mnist"}})
    with pytest.raises(ConfigError, match=r"such as 'predictive_coding' are needed\. Received: 'cnn'"):
        RoutingProtocol().measure([Subject("x", recipe, None)])
