"""Clusters are named so that most training images are right; labels decide nothing else."""

import numpy as np
import pytest

from capszoo.protocols.clusters import NamedClusters

# Of four clusters far apart, the class that most of each are of; the labels are no numbers from 0 on.
CLASSES = np.array([7, 2, 9, 4])


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(4), 50)
    return np.eye(4)[clusters] + 0.05 * rng.normal(size=(200, 4)), CLASSES[clusters]


def test_clusters_that_are_classes_are_named_without_an_error(images):
    features, labels = images
    named = NamedClusters().fit(features, labels)
    np.testing.assert_array_equal(named.predict(features), labels)
    np.testing.assert_array_equal(named.predict(np.eye(4)), CLASSES)
    np.testing.assert_array_equal(named.classes_, [2, 4, 7, 9])


def test_labels_do_not_move_clusters(images):
    features, labels = images
    wrong = labels.copy()
    wrong[::5] = 7
    np.testing.assert_array_equal(NamedClusters().fit(features, wrong).predict(features), labels)


def test_no_two_clusters_have_one_name(images):
    features, labels = images
    # Most of every cluster is of the class 7.
    mixed = np.where(np.arange(len(labels)) % 5 < 3, 7, labels)
    named = NamedClusters().fit(features, mixed).predict(np.eye(4))
    assert sorted(named) == sorted(CLASSES)
    np.testing.assert_array_equal(named, CLASSES)
