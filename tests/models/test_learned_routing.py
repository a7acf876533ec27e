"""The networks of Faria 2019 and their layers: sizes, votes, options."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import arrays, assert_nearer_than_other_rows, dtype_policy, fill

from capszoo.layers import AffinePrimaryCapsules, NormalisedClassCapsules, NormalisedConvCapsules
from capszoo.layers.routes import routed_layers
from capszoo.models import ConsensusEMNet, KernelCapsNet, LSTMCapsNet
from capszoo.routing import KernelRouting

TABLE_1 = (32, 32, 1)
SMALL = {"channels": 6, "primary_types": 2, "conv1_types": 3, "conv2_types": 4}
TINY = {
    "kernel": KernelCapsNet(**SMALL),
    "lstm": LSTMCapsNet(**SMALL, units=4, num_iterations=2),
    "em": ConsensusEMNet(**SMALL),
}
every_net = pytest.mark.parametrize("name", TINY)


@functools.cache
def built(architecture, image_shape=(20, 20, 1), num_classes=5):
    keras.utils.set_random_seed(0)
    return architecture.build(image_shape, num_classes)


def drawn(count=3, image_shape=(20, 20, 1)):
    return np.random.default_rng(0).normal(size=(count, *image_shape)).astype("float32")


def trainable(layer):
    """Trainable parameters of a layer or model: those of its routing, and all others."""
    counts = {True: 0, False: 0}
    for weight in layer.trainable_weights:
        counts["/routing/" in weight.path] += int(np.prod(weight.shape))
    return counts[True], counts[False]


# Sizes


@pytest.mark.parametrize(
    ("architecture", "of_routing"),
    [(KernelCapsNet(), 221), (LSTMCapsNet(), 39_818), (ConsensusEMNet(), 2 * 37)],
    ids=["kernel", "lstm", "em"],
)
def test_it_has_the_86_thousand_parameters_of_the_paper_and_those_of_its_routing(architecture, of_routing):
    model = built(architecture, TABLE_1)
    assert trainable(model) == (of_routing, 86_408)
    # Moving mean and variance of 64 channels.
    assert model.count_params() == 86_408 + of_routing + 128


def test_each_stage_has_the_parameters_of_table_1():
    model = built(KernelCapsNet(), TABLE_1)
    counts = {layer.name: trainable(layer)[1] for layer in model.layers[1:]}
    assert counts == {
        "conv1": 1_664,
        "norm1": 128,
        "primary_capsules": 8_704 + 136,
        "conv_capsules1": 18_432,
        "conv_capsules2": 36_864,
        "class_capsules": 20_480,
    }


def test_each_stage_has_the_shape_of_table_1():
    model = built(KernelCapsNet(), TABLE_1)
    assert model.get_layer("conv1").output.shape == (None, 14, 14, 64)
    shapes = {
        name: [tuple(tensor.shape[1:]) for tensor in model.get_layer(name).output]
        for name in KernelCapsNet.stages[1:]
    }
    assert shapes == {
        "primary_capsules": [(14, 14, 8, 4, 4), (14, 14, 8)],
        "conv_capsules1": [(6, 6, 16, 4, 4), (6, 6, 16)],
        "conv_capsules2": [(4, 4, 16, 4, 4), (4, 4, 16)],
        "class_capsules": [(5, 4, 4), (5,)],
    }


def test_the_kernels_have_4_4_and_10_gaussians():
    model = built(KernelCapsNet(), TABLE_1)
    assert [model.get_layer(name).routing.components for name in KernelCapsNet.stages[2:]] == [4, 4, 10]


def test_the_networks_of_the_lstm_are_those_of_table_2():
    model = built(LSTMCapsNet(), TABLE_1)
    routings = [model.get_layer(name).routing for name in LSTMCapsNet.stages[2:]]
    assert [routing.compatibility for routing in routings] == [(), (32, 32), (64, 64)]
    assert [routing.activation for routing in routings] == [(), (64, 64), (124, 124)]
    assert [trainable(model.get_layer(name))[0] for name in LSTMCapsNet.stages[2:]] == [
        3_264 + 34,
        3_264 + 6_946,
        3_264 + 23_046,
    ]


# Votes


def capsules(grid, types=2):
    rng = np.random.default_rng(1)
    poses = rng.normal(size=(2, *grid, types, 4, 4)).astype("float32")
    return poses, rng.uniform(size=(2, *grid, types)).astype("float32")


def unit(matrix):
    return matrix / np.sqrt(np.sum(matrix**2) + 1e-5)


def test_a_vote_is_the_pose_times_a_matrix_of_norm_one():
    conv, dense = (
        NormalisedConvCapsules(3, 3, 2, KernelRouting()),
        NormalisedClassCapsules(3, KernelRouting()),
    )
    below = capsules((5, 7))
    for layer in (conv, dense):
        layer(below)
        layer.kernel.assign(np.random.default_rng(2).normal(size=layer.kernel.shape))
    kernels = [np.asarray(layer.kernel) for layer in (conv, dense)]
    votes = [np.asarray(layer.votes(layer._positions_last(below)[0])) for layer in (conv, dense)]
    poses = below[0]
    for image, y, x, i, o in np.ndindex(2, 5, 7, 2, 3):
        expected = poses[image, y, x, i] @ unit(kernels[1][y, x, i, :, o])
        # A matrix is listed column by column.
        vote = votes[1][(y * 7 + x) * 2 + i, o, :, image].reshape(4, 4).T
        np.testing.assert_allclose(vote, expected, rtol=1e-4, atol=1e-5)
    for h, w, ky, kx, i, o in np.ndindex(2, 3, 3, 3, 2, 3):
        expected = poses[1, 2 * h + ky, 2 * w + kx, i] @ unit(kernels[0][ky, kx, i, :, o])
        vote = votes[0][(ky * 3 + kx) * 2 + i, o, :, 1, h, w].reshape(4, 4).T
        np.testing.assert_allclose(vote, expected, rtol=1e-4, atol=1e-5)


def test_the_length_of_a_matrix_does_not_matter():
    for layer in (
        NormalisedConvCapsules(3, 3, 1, KernelRouting()),
        NormalisedClassCapsules(3, KernelRouting()),
    ):
        before = arrays(layer(capsules((4, 4))))
        layer.kernel.assign(5 * layer.kernel)
        for array, other in zip(arrays(layer(capsules((4, 4)))), before, strict=True):
            np.testing.assert_allclose(array, other, rtol=1e-4, atol=1e-5)


def test_fresh_matrices_are_the_identity_with_a_little_noise():
    layer = NormalisedConvCapsules(3, 3, 1, KernelRouting())
    layer(capsules((4, 4)))
    noise = np.moveaxis(layer.kernel, -2, -3) - np.eye(4)
    assert np.abs(noise).max() <= 0.1
    assert noise.std() == pytest.approx(0.2 / np.sqrt(12), rel=0.1)


def test_primary_poses_of_the_code_are_positive_and_of_norm_one():
    features = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("float32")
    poses, _ = AffinePrimaryCapsules(2, normalise=True)(features)
    assert np.min(poses) >= 0
    np.testing.assert_allclose(np.linalg.norm(poses, axis=(-2, -1)), 1, rtol=1e-3)
    poses, _ = AffinePrimaryCapsules(2)(features)
    assert np.min(poses) < 0


def test_fresh_primary_capsules_are_half_active_without_features():
    layer = AffinePrimaryCapsules(2)
    poses, activations = layer(np.zeros((1, 3, 3, 5), "float32"))
    np.testing.assert_array_equal(activations, np.full((1, 3, 3, 2), 0.5))
    layer.activation_bias.assign([2.0, -2.0])
    layer.pose_bias.assign(np.arange(32.0))
    poses, activations = layer(np.zeros((1, 3, 3, 5), "float32"))
    np.testing.assert_allclose(activations[0, 0, 0], 1 / (1 + np.exp([-2.0, 2.0])), rtol=1e-5)
    np.testing.assert_array_equal(poses[0, 1, 1], np.arange(32.0).reshape(2, 4, 4))


# The networks


@pytest.mark.slow
@every_net
def test_more_iterations_can_be_served_than_were_trained(name):
    model = built(TINY[name])
    layer = model.get_layer("class_capsules")
    below = keras.Model(model.input, layer.input)(drawn())
    count = layer.routing.num_iterations
    served = arrays(layer(below, num_iterations=tf.constant(count)))
    for array, other in zip(served, arrays(layer(below)), strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-4, atol=1e-6)
    assert np.any(np.asarray(layer(below, num_iterations=tf.constant(1))[0]) != served[0])


@pytest.mark.slow
@every_net
def test_mixed_precision_leaves_routing_and_outputs_in_float32(name):
    with dtype_policy("mixed_bfloat16"):
        model = fill(TINY[name].build((20, 20, 1), 5))
    assert model.get_layer("conv1").compute_dtype == "bfloat16"
    assert model.get_layer("conv_capsules1").routing.compute_dtype == "float32"
    outputs = model(drawn())
    assert {tensor.dtype for tensor in outputs.values()} == {tf.float32}
    assert_nearer_than_other_rows(outputs, fill(TINY[name].build((20, 20, 1), 5))(drawn()), 0.4)


def test_options_reach_the_routings():
    for architecture, option, value in (
        (KernelCapsNet(kernel="spectral", num_iterations=2), "kernel", "spectral"),
        (LSTMCapsNet(state_roles="code", num_iterations=2), "state_roles", "code"),
        (LSTMCapsNet(units=5, num_iterations=2), "units", 5),
        (ConsensusEMNet(final_lambda=0.2, num_iterations=2), "final_lambda", 0.2),
    ):
        for number in range(3):
            routing = architecture._routing(number)
            assert getattr(routing, option) == value
            assert routing.num_iterations == 2


def test_poses_of_the_code_are_normalised_in_the_primary_capsules_only():
    assert built(KernelCapsNet(**SMALL, poses="code")).get_layer("primary_capsules").normalise
    assert not built(TINY["kernel"]).get_layer("primary_capsules").normalise


@every_net
def test_images_below_17_pixels_are_refused(name):
    with pytest.raises(ValueError, match=r"images must be at least 17x17\. Received: \(32, 16, 1\)"):
        TINY[name].build((32, 16, 1), 5)


def test_several_labels_per_image_are_refused():
    with pytest.raises(ValueError, match=r"one label per image\. Received: 2"):
        TINY["kernel"].objective(built(TINY["kernel"]), labels_per_image=2)


def test_every_routing_begins_with_the_values_of_the_architecture():
    small = {"channels": 4, "primary_types": 2, "conv1_types": 2, "conv2_types": 2}
    values = {"kernel": "spectral", "alpha": 0.5, "beta": 3.0, "scales": (0.25, 2.0), "num_iterations": 2}
    model = KernelCapsNet(**small, components=(2, 3, 5), **values).build((20, 20, 1), 3)
    routings = [layer.routing for layer in routed_layers(model)]
    assert [routing.components for routing in routings] == [2, 3, 5]
    for routing in routings:
        assert {name: getattr(routing, name) for name in values} == values
        np.testing.assert_allclose(np.exp(routing.log_alpha), 0.5, rtol=1e-6)
        np.testing.assert_allclose(np.exp(routing.log_beta), 3.0, rtol=1e-6)
