"""Familiar viewpoints are those of the training, novel ones all others, and only matched models are compared."""

import json

import numpy as np
import pytest
from tiny_norb import VIEWS, ReadsPixels

from capszoo.config import ConfigError
from capszoo.protocols import Subject, ViewpointProtocol, evaluate
from capszoo.zoo.recipes import parse_recipe

# Degrees, from the paper's text.
FAMILIAR = {"azimuth": {300, 320, 340, 0, 20, 40}, "elevation": {30, 35, 40}}
DEGREES = [{"elevation": 30 + 5 * elevation, "azimuth": 20 * azimuth} for elevation, azimuth in VIEWS]


def trained_on(factor):
    return "data.standardise=false", "data.jitter=raw", f"data.views=familiar {factor}"


def views(factor, familiar):
    """Which of the tiny set's views are familiar, or not."""
    return [i for i, degrees in enumerate(DEGREES) if (degrees[factor] in FAMILIAR[factor]) == familiar]


@pytest.mark.parametrize("factor", ["azimuth", "elevation"])
@pytest.mark.parametrize("kind", ["familiar", "novel"])
def test_a_viewpoint_protocol_sees_those_viewpoints_and_no_others(recipe, factor, kind):
    seen = set()
    model = ReadsPixels(lambda category, view: seen.update(view.tolist()) or 0 * view)
    result = evaluate(model, recipe("tiny_cnn", *trained_on(factor)), f"{kind}_{factor}s")
    assert seen == set(views(factor, kind == "familiar"))
    assert (result.value, result.n) == (0, 25 * len(seen))


@pytest.mark.parametrize(
    ("override", "received"),
    [("data.views=all", "'all'"), ("data.views=familiar elevation", "'familiar elevation'")],
)
@pytest.mark.parametrize("protocol", ["familiar_azimuths", "novel_azimuths"])
def test_viewpoints_that_are_not_what_they_are_called_are_refused(recipe, override, received, protocol):
    with pytest.raises(ConfigError, match=f"data.views='familiar azimuth'.*Received: data.views={received}"):
        evaluate(None, recipe("tiny_cnn", override), protocol)


def test_digits_have_no_viewpoints():
    digits = parse_recipe("digits", {"model": {"name": "cnn"}, "data": {"name": "mnist"}})
    with pytest.raises(ConfigError, match=r"Received: data\.views='all'"):
        evaluate(None, digits, "novel_elevations")


def pair_of(recipe, factor, cnn_errs, capsules_errs):
    data = trained_on(factor)
    return (
        Subject("runs/cnn", recipe("tiny_cnn", *data), ReadsPixels(cnn_errs), 400),
        Subject("runs/em", recipe("tiny_em", *data), ReadsPixels(capsules_errs), 120),
    )


@pytest.mark.parametrize(
    ("factor", "papers"),
    [
        ("azimuth", {"novel": (0.2, 0.135), "familiar": (0.037, 0.037)}),
        ("elevation", {"novel": (0.178, 0.123), "familiar": (0.043, 0.043)}),
    ],
)
def test_table_2_has_both_models_on_both_kinds_of_viewpoints_beside_the_papers(recipe, factor, papers):
    novel, familiar = views(factor, False), views(factor, True)
    # The CNN errs on two categories from novel viewpoints and on one from familiar ones, the capsules on one each and
    # from one familiar viewpoint on two.
    cnn = lambda category, view: np.where(np.isin(view, novel), category < 2, category < 1)  # noqa: E731
    capsules = lambda category, view: category < 1 + (view == familiar[0])  # noqa: E731
    compared = ViewpointProtocol().measure(pair_of(recipe, factor, cnn, capsules), command="again")
    values = {kind: tuple(m.value for m in row.values()) for kind, row in compared.errors.items()}
    second = (1 + 1 / len(familiar)) / 5
    assert values["novel"] == pytest.approx((0.4, 0.2))
    assert values["familiar"] == pytest.approx((0.2, second))
    assert {kind: tuple(m.paper for m in row.values()) for kind, row in compared.errors.items()} == papers
    assert compared.factor == factor
    assert compared.steps == {"cnn": 400, "capsules": 120}
    assert compared.mismatch == pytest.approx(second - 0.2)
    assert compared.reduction == pytest.approx(0.5)


def test_the_comparison_is_json_and_a_table(recipe):
    errs = lambda category, view: category < 2  # noqa: E731
    compared = ViewpointProtocol().measure(
        pair_of(recipe, "azimuth", errs, errs), command="capszoo compare a b"
    )
    data = json.loads(compared.to_json())
    cell = data["errors"]["novel"]["capsules"]
    assert (cell["protocol"], cell["data"], cell["paper"], cell["command"]) == (
        "novel_azimuths",
        "synthnorb",
        0.135,
        "capszoo compare a b",
    )
    assert cell["interval"][0] < cell["value"] == 0.4 < cell["interval"][1]
    novel, familiar = (list(row.values()) for row in ViewpointProtocol().rows(compared))
    assert novel == ["novel", "40.00% (n=75)", "20.0%", "40.00% (n=75)", "13.5%"]
    assert familiar == ["familiar", "40.00% (n=75)", "3.7%", "40.00% (n=75)", "3.7%"]


def test_a_cnn_without_errors_leaves_nothing_to_reduce(recipe):
    none = lambda category, view: 0 * view  # noqa: E731
    assert ViewpointProtocol().measure(pair_of(recipe, "azimuth", none, none)).reduction is None


def test_models_of_different_trainings_or_of_all_viewpoints_are_not_compared(recipe):
    cnn, _ = pair_of(recipe, "azimuth", None, None)
    other = Subject("other", recipe("tiny_em", *trained_on("elevation")), None)
    with pytest.raises(ConfigError, match=r"same data.*'familiar azimuth'.*'familiar elevation'"):
        ViewpointProtocol().measure([cnn, other])
    everything = Subject("all", recipe("tiny_em"), None)
    with pytest.raises(ConfigError, match=r"are needed\. Received: 'all'"):
        ViewpointProtocol().measure([everything, everything])
