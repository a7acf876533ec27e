"""COIL-20: every object is in every split, no view is in two, and test views lie between those of the training."""

import numpy as np
import pytest
import tiny_objects

from capszoo.data import Coil20, coil20
from capszoo.data.sources import DataNotFound


@pytest.fixture
def tiny(monkeypatch):
    """Every copy of COIL-20 is the tiny one."""
    monkeypatch.setattr(coil20, "read_views", tiny_objects.read_views)


def test_a_test_view_is_five_degrees_from_the_nearest_training_view(tiny):
    train, test = (Coil20().open(split) for split in ("train", "test"))
    for number in range(3):
        seen, unseen = (split.factors["azimuth"][split.labels == number] for split in (train, test))
        assert len(seen) == 18
        assert len(unseen) == 36
        apart = np.abs(unseen[:, None] - seen)
        assert (np.minimum(apart, 360 - apart).min(axis=1) == 5).all()


def test_validation_views_are_half_way_between_those_of_the_training(tiny):
    azimuths = {split: set(Coil20().open(split).factors["azimuth"] % 20) for split in ("train", "validation")}
    assert azimuths == {"train": {0}, "validation": {10}}


def test_what_is_missing_is_said(no_data):
    with pytest.raises(DataNotFound, match=r"'coil20' was not found(.|\n)*features image, label and azimuth"):
        Coil20().open("train")


@pytest.mark.slow
@pytest.mark.data
def test_the_real_set_has_all_views_of_twenty_objects():
    try:
        splits = [Coil20().open(split) for split in ("train", "validation", "test")]
    except DataNotFound as error:
        pytest.skip(str(error))
    assert [len(split) for split in splits] == [360, 360, 720]
    assert set(splits[2].labels) == set(range(20))
