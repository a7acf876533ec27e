"""Mixtures of images are asked for the mixture of their labels, and cost the mixture of their losses."""

import keras
import numpy as np
import pytest

from capszoo.config import ConfigError
from capszoo.losses import ActivationCrossEntropy, MarginLoss, SpreadLoss
from capszoo.training.mixup import mix

SIZE = 6


@pytest.fixture
def batch():
    """Images that are constant, each with a value and a class of its own."""
    values = np.arange(SIZE, dtype="float32")
    images = np.broadcast_to(values[:, None, None, None], (SIZE, 3, 3, 1))
    return {"images": images}, {"scores": np.eye(SIZE, dtype="float32"), "reconstruction": images[:, None]}


def test_every_array_is_mixed_by_the_same_shares(batch):
    inputs, targets = mix(*batch, 0.8, np.random.default_rng(0))
    # Image k is k everywhere: a mixture's grey level is the mean of its classes' numbers.
    expected = targets["scores"] @ np.arange(SIZE)
    np.testing.assert_allclose(inputs["images"][:, 1, 2, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(targets["reconstruction"][:, 0], inputs["images"])
    np.testing.assert_allclose(targets["scores"].sum(axis=1), 1, rtol=1e-6)
    assert (targets["scores"] > 0).sum(axis=1).max() == 2


def test_shares_are_beta_distributed():
    """Variance of Beta(a, a): 1 / (4 (2 a + 1))."""
    one_hot = np.eye(2, dtype="float32")[[0] * 4000 + [1] * 4000]
    _, targets = mix({"images": one_hot}, {"scores": one_hot}, 2.0, np.random.default_rng(0))
    # The share of an image's own class, where the other one is of the other class.
    mixed = targets["scores"][(targets["scores"] > 0).all(axis=1)][:, 0]
    assert mixed.mean() == pytest.approx(0.5, abs=0.02)
    assert mixed.var() == pytest.approx(1 / 20, rel=0.1)


def test_the_same_generator_gives_the_same_mixtures(batch):
    first, second, other = (mix(*batch, 0.4, np.random.default_rng(seed)) for seed in (1, 1, 2))
    for one, same in zip(keras.tree.flatten(first), keras.tree.flatten(second), strict=True):
        np.testing.assert_array_equal(one, same)
    assert (first[0]["images"] != other[0]["images"]).any()


@pytest.mark.parametrize(
    ("loss", "margin"), [(MarginLoss, 1), (SpreadLoss, 1), (SpreadLoss, 0.35), (ActivationCrossEntropy, 1)]
)
def test_mixed_targets_cost_the_mixture_of_the_losses(loss, margin):
    rng = np.random.default_rng(0)
    activations = rng.uniform(0.05, 0.95, (1, 5)).astype("float32")
    one, other = (margin * np.eye(5, dtype="float32")[[k]] for k in (1, 3))
    value = loss()(0.3 * one + 0.7 * other, activations)
    expected = 0.3 * np.asarray(loss()(one, activations)) + 0.7 * np.asarray(loss()(other, activations))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_labels_that_are_numbers_cannot_be_mixed():
    with pytest.raises(ConfigError, match="mixup"):
        mix(
            {"images": np.zeros((2, 3), "float32")},
            {"scores": np.array([1, 2])},
            0.4,
            np.random.default_rng(0),
        )
