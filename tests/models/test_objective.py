"""The set accuracy that training reports."""

import numpy as np
import pytest

from capszoo.models.objective import set_accuracy


@pytest.mark.parametrize(
    ("targets", "scores", "right"),
    [
        ([0, 1, 0], [0.1, 0.8, 0.3], 1),
        ([0, 1, 0], [0.9, 0.8, 0.3], 0),
        ([0, 1, 1], [0.2, 0.8, 0.3], 1),
        ([0, 1, 1], [0.4, 0.8, 0.3], 0),
        ([0, 1, 0], [0.5, 0.5, 0.3], 0),
    ],
    ids=["the longest", "another is longer", "the two longest", "one of two", "a tie"],
)
def test_an_image_is_right_when_its_classes_are_exactly_the_highest_scores(targets, scores, right):
    value = set_accuracy(np.array([targets], "float32"), np.array([scores], "float32"))
    np.testing.assert_array_equal(value, [right])


def test_images_are_judged_one_by_one():
    targets = np.eye(3, dtype="float32")
    scores = np.array([[0.9, 0.1, 0.1], [0.9, 0.1, 0.1], [0.1, 0.2, 0.3]], "float32")
    np.testing.assert_array_equal(set_accuracy(targets, scores), [1, 0, 1])
