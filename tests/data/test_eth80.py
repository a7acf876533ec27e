"""ETH-80 tests on objects that nobody trained on, and its viewpoints are degrees of the upper hemisphere."""

import numpy as np
import pytest
import tiny_objects

from capszoo.config import ConfigError, parse_section
from capszoo.data import Eth80, eth80
from capszoo.data.sources import DataNotFound
from capszoo.protocols import Subject, ViewpointProtocol, evaluate
from capszoo.zoo.recipes import parse_recipe

# Elevation and the number of azimuths there: the 41 photographs of each object.
HEMISPHERE = {90: 1, 68: 4, 55: 4, 45: 4, 24: 8, 22: 4, 0: 16}


@pytest.fixture
def tiny(monkeypatch):
    """Every copy of ETH-80 is the tiny one."""
    monkeypatch.setattr(eth80, "read_photographs", tiny_objects.read_photographs)


def test_objects_of_the_splits_are_disjoint(tiny):
    found = {split: set(Eth80().open(split).factors["instance"]) for split in ("train", "validation", "test")}
    assert found == {"train": {0, 1, 2, 3}, "validation": {4}, "test": {5, 6, 7, 8, 9}}


def test_every_viewpoint_is_either_familiar_or_novel(tiny):
    for factor in ("azimuth", "elevation"):
        views = eth80.VIEWS
        assert not set(views[f"familiar {factor}"][factor]) & set(views[f"novel {factor}"][factor])
        parts = [len(Eth80(views=f"{kind} {factor}").open("test")) for kind in ("familiar", "novel")]
        assert sum(parts) == len(Eth80().open("test"))


def test_grey_is_one_channel_of_the_same_photographs():
    assert (Eth80().image_shape, Eth80(colour=False).image_shape) == ((32, 32, 3), (32, 32, 1))
    assert Eth80(colour=False).raw.raw_shape == (96, 96, 1)


def test_a_network_that_knows_familiar_elevations_is_measured_on_novel_ones_beside_no_number_of_the_paper(
    tiny,
):
    data = {"name": "eth80", "size": 24, "crop": 18, "views": "familiar elevation"}
    recipe = parse_recipe("seen", {"model": {"name": "cnn"}, "data": data})
    models = [Subject(name, recipe, Constant()) for name in ("cnn", "capsules")]
    report = ViewpointProtocol().measure(models)
    assert report.errors["novel"]["cnn"].n == 3 * 40
    assert report.errors["familiar"]["cnn"].n == 3 * 40
    # A model that always says the same is right about one category of eight.
    assert report.errors["novel"]["capsules"].value == pytest.approx(7 / 8)
    assert report.errors["novel"]["capsules"].paper is None
    assert ViewpointProtocol().rows(report)[0]["paper's cnn"] == ""
    with pytest.raises(ConfigError, match="familiar azimuth"):
        evaluate(Constant(), recipe, "novel_azimuths")


class Constant:
    """A stand-in for a model that knows one category."""

    def predict_on_batch(self, images):
        return {"scores": np.tile(np.eye(8)[3], (len(images), 1))}


def test_objects_that_test_cannot_validate():
    with pytest.raises(ConfigError, match=r"7 is not allowed"):
        parse_section("data", {"name": "eth80", "validation_instance": 7})


def test_what_is_missing_is_said_with_the_features_that_a_copy_needs(no_data):
    with pytest.raises(DataNotFound, match=r"'eth80' was not found(.|\n)*label, instance, polar and azimuth"):
        Eth80().open("train")


@pytest.fixture
def real():
    """The real photographs, where they are."""
    try:
        return Eth80(validation_instance=None).open("train")
    except DataNotFound as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.data
def test_the_real_photographs_are_seen_from_the_whole_hemisphere(real):
    assert len(real) == len(Eth80().open("test")) == 1640
    elevations, counts = np.unique(real.factors["elevation"], return_counts=True)
    assert dict(zip(elevations.tolist(), (counts // 40).tolist(), strict=True)) == HEMISPHERE
    known = {kind: set(view["azimuth"]) for kind, view in eth80.VIEWS.items() if "azimuth" in view}
    assert set(real.factors["azimuth"].tolist()) == set().union(*known.values())


@pytest.mark.slow
@pytest.mark.data
def test_the_real_photographs_in_grey_have_the_luma_of_those_in_colour(real):
    grey = Eth80(validation_instance=None, colour=False).open("train").images
    luma = (real.images @ eth80.LUMA)[..., None]
    # Both are rounded twice.
    assert np.abs(grey - luma).max() <= 1.5
