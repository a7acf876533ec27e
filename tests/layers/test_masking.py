"""Masks: which capsules are decoded."""

import numpy as np
import pytest
from support import POLICIES, dtype_policy

from capszoo.layers import MaskCapsules, MostActive


def test_a_mask_keeps_the_chosen_capsule_in_its_place_and_zeroes_the_others():
    poses = np.arange(1, 13, dtype="float32").reshape(1, 3, 4)
    selection = np.array([[[0, 1, 0], [0, 0, 1]]], "float32")
    masked = MaskCapsules()(poses, selection)
    np.testing.assert_array_equal(
        masked, [[[0, 0, 0, 0, 5, 6, 7, 8, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0, 9, 10, 11, 12]]]
    )


def test_each_image_is_masked_by_its_own_selection():
    poses = np.random.default_rng(0).normal(size=(5, 3, 2)).astype("float32")
    labels = np.array([2, 0, 1, 1, 2])
    masked = MaskCapsules()(poses, np.eye(3, dtype="float32")[labels][:, None])
    for image, label, row in zip(poses, labels, masked, strict=True):
        np.testing.assert_array_equal(row[0, 2 * label : 2 * label + 2], image[label])
        assert np.count_nonzero(row) == 2


def test_the_most_active_capsules_come_first():
    activations = np.array([[0.1, 0.9, 0.5], [0.7, 0.2, 0.3]], "float32")
    np.testing.assert_array_equal(MostActive()(activations), [[[0, 1, 0]], [[1, 0, 0]]])
    np.testing.assert_array_equal(
        MostActive(2)(activations), [[[0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 0, 1]]]
    )


def test_of_equal_activations_the_lower_index_comes_first():
    np.testing.assert_array_equal(MostActive(2)(np.full((1, 3), 0.5, "float32")), [[[1, 0, 0], [0, 1, 0]]])


@pytest.mark.parametrize("policy", ["float32", *POLICIES])
def test_nearly_equal_activations_are_distinguished_under_every_policy(policy):
    with dtype_policy(policy):
        chosen = MostActive()(np.array([[0.95, 0.9501, 0.2]], "float32"))
    np.testing.assert_array_equal(chosen, [[[0, 1, 0]]])


def test_fewer_than_one_capsule_is_refused():
    with pytest.raises(ValueError, match=r"count must be at least 1\. Received: 0"):
        MostActive(0)


def test_more_capsules_than_there_are_cannot_be_selected():
    with pytest.raises(ValueError, match=r"5 capsules cannot be selected\. Received: 3"):
        MostActive(5)(np.ones((2, 3), "float32"))
