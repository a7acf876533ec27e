"""Self-routing: the network that its authors count, and what its capsules promise."""

import numpy as np
import pytest

from capszoo.models import SelfRoutingCapsNet
from capszoo.models.architecture import Classifies, RoutesIteratively
from capszoo.models.network import trainable_parameters


def test_it_has_the_parameters_of_the_authors_network_but_for_biases_and_normalised_poses():
    """Theirs would have 815,104 for two cameras."""
    biases, normalised = 16 + 32 + 32 + 64 + 64 + 128 + 512 + 32, 2 * 512
    assert trainable_parameters(SelfRoutingCapsNet().build((32, 32, 2), 5)) == 815_104 + biases - normalised


def test_it_classifies_in_one_pass():
    assert SelfRoutingCapsNet().has(Classifies)
    assert not SelfRoutingCapsNet().has(RoutesIteratively)


def test_a_fresh_network_shares_capsules_almost_equally_and_scores_sum_to_one():
    model = SelfRoutingCapsNet(channels=(4,), strides=(2,), primary_types=2, primary_dim=3).build(
        (8, 8, 1), 5
    )
    images = np.random.default_rng(0).random((3, 8, 8, 1), dtype="float32")
    np.testing.assert_allclose(model(images)["scores"], np.full((3, 5), 0.2), rtol=0.02)
    layer = model.get_layer("scores")
    layer.kernel.assign(np.random.default_rng(1).normal(size=layer.kernel.shape))
    scores = np.asarray(model(images)["scores"])
    assert np.ptp(scores) > 0.02
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)


def test_silent_children_have_silent_parents():
    layer = (
        SelfRoutingCapsNet(channels=(4,), strides=(2,), primary_types=2)
        .build((8, 8, 1), 5)
        .get_layer("scores")
    )
    poses, activations = np.ones((1, 4, 4, 2, 16), "float32"), np.zeros((1, 4, 4, 2), "float32")
    np.testing.assert_array_equal(layer((poses, activations)), np.zeros((1, 5)))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"strides": (1, 2)}, "equally many"),
        ({"channels": (16, 32, 32, 64, 64, 0)}, "channels must be at least 1"),
        ({"primary_dim": 0}, "primary_dim must be at least 1"),
    ],
)
def test_illegal_hyperparameters_are_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        SelfRoutingCapsNet(**wrong)
