"""Thirteen looks at an image count as their mean."""

import numpy as np
import pytest
from support import Recorded

from capszoo.config import ConfigError
from capszoo.data import ArraySplit
from capszoo.protocols import evaluate
from capszoo.protocols.crops import CROPS, predict_crops

GREY = ("data.standardise=false", "data.jitter=raw")


class Corners:
    """A stand-in for a model: its scores are the grey levels of four corners and of the middle of the left picture."""

    def predict_on_batch(self, images):
        self.batches = [*getattr(self, "batches", []), len(images)]
        left = images[..., 0]
        return {
            "scores": np.stack([left[:, y, x] for y, x in ((0, 0), (0, -1), (-1, 0), (-1, -1), (9, 9))], -1)
        }


def corner_scores(image, down, right):
    """The same for the crop of one whole picture `[24, 24, 2]` uint8, in float64."""
    top, left = 3 + down, 3 + right
    rows = ((0, 0), (0, 17), (17, 0), (17, 17), (9, 9))
    return np.array([float(image[top + y, left + x, 0]) for y, x in rows])


def test_the_thirteen_crops_are_the_centre_and_three_rings_of_diagonal_neighbours():
    assert len(CROPS) == len(set(CROPS)) == 13
    assert set(CROPS) == {(0, 0)} | {(y, x) for y in range(-3, 4) for x in range(-3, 4) if abs(y) == abs(x)}


def test_scores_are_the_mean_of_the_shares_that_each_crop_gives(recipe):
    split = recipe("tiny_cnn", *GREY).data.open("test")
    # Dark crops weigh as much as bright ones.
    split.images[:, :3] //= 10
    scores, labels = predict_crops(Corners(), split, batch_size=40)
    for index in (0, 39, 40, 149):
        shares = [corner_scores(split.images[index], *crop) for crop in CROPS]
        expected = np.mean([share / share.sum() for share in shares], axis=0)
        np.testing.assert_allclose(scores[index], expected, rtol=1e-5)
    np.testing.assert_array_equal(labels, split.labels)


def test_crops_that_would_leave_a_smaller_image_are_left_out(recipe):
    split, model = recipe("tiny_cnn", *GREY, "data.size=22").data.open("test"), Corners()
    scores, _ = predict_crops(model, split)
    assert model.batches == [150] * 9
    np.testing.assert_array_equal(scores, predict_crops(model, split, CROPS[:9])[0])


def test_one_crop_in_the_centre_ranks_as_the_plain_test_error_does(recipe):
    split, model = recipe("tiny_cnn", *GREY).data.open("test"), Corners()
    scores, _ = predict_crops(model, split, crops=((0, 0),))
    plain = model.predict_on_batch(split.batch(np.arange(len(split)))["images"])["scores"]
    np.testing.assert_allclose(scores * plain.sum(axis=-1, keepdims=True), plain, rtol=1e-5)


def test_scores_that_are_all_zero_stay_zero(recipe):
    split = recipe("tiny_cnn", *GREY).data.open("test")
    split.images[:] = 0
    scores, _ = predict_crops(Corners(), split)
    np.testing.assert_array_equal(scores, 0)


def test_the_protocol_counts_images_once_and_names_the_same_data_as_the_plain_error(recipe):
    chosen, model, progress = recipe("tiny_cnn", *GREY), Corners(), Recorded()
    chosen.card.protocols["test_error_multicrop"] = 0.014
    result = evaluate(model, chosen, "test_error_multicrop", progress=progress)
    assert (result.n, result.paper, result.data) == (150, 0.014, "synthnorb")
    assert (progress.begun, progress.counts) == ([("test_error_multicrop", 150, 0)], [150])
    assert model.batches == [150] * 13
    assert result.fingerprint == evaluate(model, chosen).fingerprint
    scores, labels = predict_crops(model, chosen.data.open("test"))
    assert result.wrong == (scores.argmax(-1) != labels).sum()


def test_a_shifted_crop_is_cut_where_it_says_and_has_a_fingerprint_of_its_own(recipe):
    split = recipe("tiny_cnn", *GREY).data.open("test")
    moved = split.shifted(-3, 2)
    np.testing.assert_array_equal(
        moved.batch(np.array([5]))["images"][0] * np.float32(255), split.images[5, 0:18, 5:23]
    )
    prints = {split.fingerprint(), moved.fingerprint(), split.shifted(2, -3).fingerprint()}
    assert len(prints) == 3
    assert split.shifted(0, 0).fingerprint() == split.fingerprint()


def test_a_crop_that_would_leave_the_image_is_refused(recipe):
    split = recipe("tiny_cnn").data.open("test")
    for shift in ((4, 0), (0, -4)):
        with pytest.raises(ValueError, match="-3 to 3 pixels"):
            split.shifted(*shift)


def test_images_that_are_not_cropped_are_refused():
    split = ArraySplit(np.zeros((3, 8, 8, 1), np.uint8), np.arange(3))
    with pytest.raises(ConfigError, match="crops its images"):
        predict_crops(Corners(), split)
