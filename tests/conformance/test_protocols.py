"""Every registered protocol says what it measures, refuses models that it is not for, and can be measured again."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image
from support import fill
from tiny import PROBABILISTIC, STACKED
from tiny_norb import read_pairs

from capszoo.config import ConfigError, sections
from capszoo.data import smallnorb
from capszoo.data.sources import DataNotFound
from capszoo.models.architecture import Architecture
from capszoo.protocols import Measurement, NumberProtocol, Report, Subject, get_protocol, protocols
from capszoo.zoo.recipes import parse_recipe

pytestmark = pytest.mark.usefixtures("data")

NAMES = sorted(protocols())
# There is no tiny affNIST; its generated twin is measured in its place.
AFFNIST = [name for name in NAMES if name.endswith("affnist")]
# They differentiate the inference itself, which takes long to compile.
LONG = {"latent_optimisation", "sparsity"}
DIGITS = {"name": "mnist", "validation": 50}
CANVAS = {**DIGITS, "pad": 6, "shift": 6}
CAPSULES = {"name": "dynamic", "channels": 4, "primary_types": 2, "decoder": False}
TOYS = {"name": "synthnorb", "size": 24, "crop": 18}
# What a protocol needs other than digits of 28x28: models by its name, or by the beginning of it, and options that make
# it short.
SUBJECTS = {
    "attack": (CAPSULES, DIGITS, {"images": 4, "epsilons": [0.1]}),
    "active": ({**CAPSULES, "name": "predictive_coding"}, DIGITS, {"images": 2}),
    "sparsity": (
        {**CAPSULES, "name": "predictive_coding"},
        DIGITS,
        {"images": 2, "steps": 2, "penalty": {"class_capsules": 0.01}},
    ),
    "likelihood": (
        {"name": "attention", "objects": 2, "object_dim": 3, "channels": 2, "hidden": 8},
        DIGITS,
        {"images": 4, "samples": 2},
    ),
    "latent_optimisation": ({"name": "probabilistic", **PROBABILISTIC}, DIGITS, {"images": 2, "steps": 2}),
    "expanded_mnist": (CAPSULES, CANVAS, {}),
    "affnist_synth": (CAPSULES, CANVAS, {}),
    "affnist": (CAPSULES, CANVAS, {}),
    "multimnist": (CAPSULES, {"name": "multimnist"}, {}),
    "test_error_multicrop": (CAPSULES, TOYS, {}),
    "familiar": (CAPSULES, TOYS, {}),
    "novel": (CAPSULES, TOYS, {}),
    "viewpoints": (CAPSULES, {**TOYS, "views": "familiar azimuth"}, {}),
    "masked": ({"name": "sparse", "channels": 4, "primary_types": 2, "latent_capsules": 4}, DIGITS, {}),
    "presence": ({"name": "probabilistic", **PROBABILISTIC}, DIGITS, {}),
    "presence_clusters": ({"name": "scae", **STACKED}, DIGITS, {}),
    "clusters": ({"name": "scae", **STACKED}, DIGITS, {}),
}


def needs(name):
    """Model, data and options for a protocol."""
    found = max((key for key in SUBJECTS if name.startswith(key)), key=len, default=None)
    model, data, options = SUBJECTS[found] if found else (CAPSULES, DIGITS, {})
    if "affnist" in name:
        data = CANVAS
    if name.startswith(("familiar", "novel")):
        data = {**TOYS, "views": f"familiar {name.split('_')[1][:-1]}"}
    return model, data, options


@pytest.fixture(scope="module")
def built(data):
    """`built(model, data)`: the recipe and a network with known weights, made once."""
    known = {}

    def make(model, data):
        key = json.dumps([model, data])
        if key not in known:
            recipe = parse_recipe("tiny", {"model": model, "data": data})
            known[key] = recipe, fill(recipe.build(), scale=0.05)
        return known[key]

    return make


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """The tiny smallNORB is the only one there is."""
    monkeypatch.setattr(smallnorb, "read_pairs", read_pairs)


@pytest.mark.parametrize("name", NAMES)
def test_a_protocol_says_what_it_measures_and_where_it_is_described(name):
    protocol = get_protocol(name)
    assert len(protocol.__doc__.splitlines()[0]) > 20
    assert protocol.metric
    assert any(character.isdigit() for character in protocol.source), "a paper has a year"
    assert issubclass(protocol.role, Architecture)
    least, most = protocol.models
    assert least >= 1
    assert most is None or most >= least


@pytest.mark.parametrize("name", NAMES)
def test_options_are_plain_data_and_an_unknown_one_is_refused(name):
    protocol = get_protocol(name)
    plain = json.loads(json.dumps({f.name: getattr(protocol, f.name) for f in dataclasses.fields(protocol)}))
    assert get_protocol(name, plain) == protocol
    with pytest.raises(ConfigError, match="no_such_option: unknown key"):
        get_protocol(name, {"no_such_option": 1})


@pytest.mark.parametrize("name", NAMES)
def test_models_that_cannot_play_the_role_and_too_few_or_too_many_are_refused(name):
    protocol = get_protocol(name)
    least, most = protocol.models
    for count in (least - 1, *(() if most is None else (most + 1,))):
        with pytest.raises(ConfigError, match=f"looks at .*Received: {count}"):
            protocol.measure([None] * count)
    for architecture in sections("model").values():
        recipe = parse_recipe("x", {"model": {"name": architecture.section_name}, "data": DIGITS})
        if not recipe.model.has(protocol.role):
            with pytest.raises(ConfigError, match=f"{name}.*needs an architecture that .*, such as "):
                protocol.measure([Subject("x", recipe, None)] * least)


def measured(name, built):
    """The protocol with short options, its subjects, and the result."""
    model, data, options = needs(name)
    protocol = get_protocol(name, options)
    recipe, network = built(model, data)
    subjects = [Subject(f"tiny {number}", recipe, network, 3) for number in range(protocol.models[0])]
    return protocol, subjects, protocol.measure(subjects, command="capszoo again")


@pytest.mark.parametrize("name", AFFNIST)
def test_data_that_are_not_here_are_named(name, built):
    with pytest.raises(DataNotFound, match="affNIST"):
        measured(name, built)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
        for name in NAMES
        if name not in AFFNIST
    ],
)
def test_a_result_is_plain_data_that_can_be_measured_again_a_table_and_drawings(name, built, tmp_path):
    protocol, subjects, result = measured(name, built)
    assert isinstance(result, Report)
    assert isinstance(result, Measurement) == isinstance(protocol, NumberProtocol)
    written = json.dumps(json.loads(result.to_json()))
    for word in ("capszoo again", '"fingerprint"', '"revision"', '"date"'):
        assert word in written
    rows = protocol.rows(result)
    assert rows
    assert all(isinstance(cell, str) for row in rows for pair in row.items() for cell in pair)
    assert all(isinstance(note, str) for note in protocol.notes(result))
    if isinstance(result, Measurement):
        assert (result.protocol, result.metric, result.unit) == (name, protocol.metric, protocol.unit)
        low, high = result.interval
        assert low - 1e-12 <= result.value <= high + 1e-12  # but for rounding
        assert result.n > 0
        # A share says of how many; a mean has a unit.
        assert (result.wrong is None) == bool(result.unit)
    for drawing, figure in protocol.draw(subjects, result).items():
        figure.savefig(tmp_path / f"{drawing}.png")
        assert np.asarray(Image.open(tmp_path / f"{drawing}.png")).std() > 0
