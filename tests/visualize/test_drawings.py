import io
import re
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import fill

import capszoo
from capszoo import visualize
from capszoo.data.split import ArraySplit
from capszoo.layers import BatchNormalisedClassCapsules, DenseCapsules
from capszoo.layers.routes import routed_layers
from capszoo.models import (
    ConvNet,
    DynamicCapsNet,
    HeinsenCapsNet,
    InvertedAttentionCapsNet,
    MatrixCapsNet,
    SelfRoutingCapsNet,
    VariationalAutoencoder,
)
from capszoo.routing import DynamicRouting, VariationalBayesRouting
from capszoo.visualize.votes import _means

SMALL = {"channels": 4, "primary_types": 2, "primary_dim": 4, "class_dim": 6}
CHILDREN = 2 * 2 * 2  # positions of a 20x20 image, types


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).uniform(size=(3, 20, 20, 1)).astype("float32")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return DynamicCapsNet(primary_scale=1.0, **SMALL).build((20, 20, 1), 3)


@pytest.fixture(scope="module")
def outputs(model, images):
    return model.predict(images, verbose=0)


@pytest.fixture(scope="module")
def bare():
    return DynamicCapsNet(decoder=False, **SMALL).build((20, 20, 1), 3)


def test_reconstructions_are_the_models_own(model, images, outputs):
    np.testing.assert_allclose(visualize.reconstructions(model, images), outputs["reconstruction"], atol=1e-6)


def test_an_unchanged_pose_decodes_to_the_reconstruction(model, images, outputs):
    decoded = visualize.perturbations(model, images, values=[0.0])
    assert decoded.shape == (3, 6, 1, 20, 20, 1)
    for row in np.moveaxis(decoded[:, :, 0], 1, 0):
        np.testing.assert_allclose(row, outputs["reconstruction"], atol=1e-6)


def test_the_defaults_are_those_of_figure_4(model, images):
    assert visualize.perturbations(model, images[:1]).shape == (1, 6, 11, 20, 20, 1)
    np.testing.assert_allclose(np.diff(visualize.TWEAKS), 0.05)
    assert (visualize.TWEAKS[0], visualize.TWEAKS[-1]) == (-0.25, 0.25)


def test_a_perturbation_decodes_the_chosen_capsule_with_one_dimension_moved(model, images, outputs):
    decoded = visualize.perturbations(model, images, capsule=2, dimensions=[5, 1], values=[-3.0, 0.5, 3.0])
    assert decoded.shape == (3, 2, 3, 20, 20, 1)
    masked = np.zeros((3, 1, 3 * 6), "float32")
    masked[:, 0, 12:] = outputs["poses"][:, 2]
    masked[:, 0, 12 + 5] -= 3.0
    expected = keras.ops.convert_to_numpy(model.get_layer("decoder")(masked))[:, 0]
    np.testing.assert_allclose(decoded[:, 0, 0], expected, atol=1e-6)
    assert np.abs(decoded[:, 0] - decoded[:, 1]).max() > 1e-3


@pytest.mark.parametrize("function", [visualize.reconstructions, visualize.perturbations])
def test_a_model_without_decoder_cannot_reconstruct(function, bare, images):
    with pytest.raises(ValueError, match=r"needs an architecture that (reconstructs|decodes).*decoder=False"):
        function(bare, images)


@pytest.mark.parametrize("function", ["reconstructions", "perturbations", "coefficients"])
def test_images_of_another_shape_are_refused(function, model):
    with pytest.raises(
        ValueError, match=r"images must be \[B, 20, 20, 1\]. Received shape: \(2, 28, 28, 1\)"
    ):
        getattr(visualize, function)(model, np.zeros((2, 28, 28, 1)))


def test_grey_levels_are_what_they_are_for_the_network(model, images):
    levels = np.round(images * 255).astype("uint8")
    expected = visualize.coefficients(model, levels / np.float32(255))
    np.testing.assert_allclose(visualize.coefficients(model, levels), expected, atol=1e-6)


def test_values_that_the_network_refuses_are_not_drawn():
    toys = capszoo.create("matrix_em_smallnorb")
    with pytest.raises(ValueError, match="Received: raw ones"):
        visualize.coefficients(toys, np.full((1, 32, 32, 2), 0.5, "float32"))


def test_a_name_of_a_class_is_no_formula(images, outputs):
    figure = visualize.draw_predictions(images, outputs["scores"], ["cost_$1_$2", "b", "$5 & $10"])
    figure.savefig(io.BytesIO())


def test_capsules_and_dimensions_that_do_not_exist_are_refused(model, images):
    with pytest.raises(ValueError, match=r"capsule must be from 0 to 2. Received: \[3\]"):
        visualize.perturbations(model, images, capsule=3)
    with pytest.raises(ValueError, match=r"dimensions must be from 0 to 5. Received: \[0, -1\]"):
        visualize.perturbations(model, images, dimensions=[0, -1])


def test_each_childs_coefficients_start_uniform_and_sum_to_one(bare, images):
    routed = visualize.coefficients(bare, images)
    assert routed.shape == (3, 3, CHILDREN, 3)
    np.testing.assert_allclose(routed[0], 1 / 3, atol=1e-6)
    np.testing.assert_allclose(routed.sum(axis=-1), 1, atol=1e-6)


def test_coefficients_follow_the_agreement_of_votes(model, images):
    """Two iterations by hand: then a child's logits are its votes' agreement with the first parents."""
    below = keras.Model(model.input, model.get_layer("primary_capsules").output)
    layer = model.get_layer("class_capsules")
    votes = keras.ops.convert_to_numpy(layer.votes(below(images)))
    bias = keras.ops.convert_to_numpy(layer.routing.bias)
    total = votes.sum(axis=1) / 3 + bias
    norm = np.linalg.norm(total, axis=-1, keepdims=True)
    logits = np.einsum("biod,bod->bio", votes, total * norm / (1 + norm**2))
    expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    routed = visualize.coefficients(model, images, num_iterations=2)
    assert routed.shape == (2, 3, CHILDREN, 3)
    np.testing.assert_allclose(routed[1], expected, atol=1e-5)


def test_images_beyond_one_batch_keep_their_coefficients(bare):
    images = np.random.default_rng(5).uniform(size=(35, 20, 20, 1)).astype("float32")
    whole = visualize.coefficients(bare, images)
    assert whole.shape[1] == 35
    np.testing.assert_allclose(visualize.coefficients(bare, images[33:]), whole[:, 33:], atol=1e-6)


def test_a_model_without_class_capsules_has_no_coefficients():
    other = keras.Sequential([keras.Input((20, 20, 1)), keras.layers.Flatten()])
    with pytest.raises(ValueError, match="a model with capsules that are routed is needed"):
        visualize.coefficients(other, np.zeros((1, 20, 20, 1)))


def test_entropy_is_zero_for_the_decided_and_ln_o_for_the_undecided():
    decided, undecided, half, silent = [0, 1, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0], [0, 0, 0, 0]
    entropy = visualize.coefficient_entropy([[decided, undecided], [half, silent]])
    np.testing.assert_allclose(entropy, [[0, np.log(4)], [np.log(2), 0]], atol=1e-12)


def test_entropy_does_not_depend_on_what_a_leaky_child_holds_back():
    coefficients = np.array([0.5, 0.2, 0.1])
    np.testing.assert_allclose(
        visualize.coefficient_entropy(coefficients), visualize.coefficient_entropy(coefficients / 0.8)
    )


def test_means_by_type_run_over_images_and_positions():
    routed = np.random.default_rng(1).uniform(size=(2, 3, CHILDREN, 5))
    means = visualize.coefficients_by_type(routed, types=2)
    assert means.shape == (2, 2, 5)
    np.testing.assert_allclose(means[:, 1], routed[:, :, 1::2].mean(axis=(1, 2)))
    with pytest.raises(ValueError, match=r"8 children must be a multiple of the types. Received types: 3"):
        visualize.coefficients_by_type(routed, types=3)


def shown(axes):
    return np.asarray(axes.images[0].get_array())


def test_reconstructions_are_drawn_below_their_images(model, images, tmp_path):
    decoded = visualize.reconstructions(model, images)
    figure = visualize.draw_reconstructions(images, decoded)
    picture = shown(figure.axes[0])
    np.testing.assert_array_equal(picture[:20, 20:40], images[1, ..., 0])
    np.testing.assert_array_equal(picture[20:, 20:40], decoded[1, ..., 0])
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_two_reconstructions_of_an_image_are_drawn_in_two_rows(images):
    figure = visualize.draw_reconstructions(images, np.stack([images, 1 - images], axis=1))
    np.testing.assert_array_equal(shown(figure.axes[0])[40:, :20], 1 - images[0, ..., 0])
    with pytest.raises(ValueError, match="Received reconstructions"):
        visualize.draw_reconstructions(images, images[:2])


def test_perturbations_are_drawn_by_dimension_and_value():
    perturbed = np.random.default_rng(2).uniform(size=(2, 3, 4, 5, 6, 1))
    figure = visualize.draw_perturbations(perturbed, values=[-0.3, -0.1, 0.1, 0.3], dimensions=[7, 9, 11])
    np.testing.assert_array_equal(shown(figure.axes[1])[5:10, 12:18], perturbed[1, 1, 2, ..., 0])
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["7", "9", "11"]
    with pytest.raises(ValueError, match=r"expected 3 dimensions and 4 values. Received: 3 and 11"):
        visualize.draw_perturbations(perturbed)


def test_coefficients_are_drawn_in_one_panel_per_iteration():
    routed = np.random.default_rng(3).uniform(size=(3, 2, CHILDREN, 4))
    *panels, _colours = visualize.draw_coefficients(routed, types=2, class_names=list("abcd")).axes
    assert [panel.get_title() for panel in panels] == ["iteration 1", "iteration 2", "iteration 3"]
    for panel, means in zip(panels, visualize.coefficients_by_type(routed, 2), strict=True):
        np.testing.assert_array_equal(shown(panel), means)
    visualize.draw_coefficients(routed, types=2, class_names=range(4))
    with pytest.raises(ValueError, match=r"expected 4 class names. Received 1"):
        visualize.draw_coefficients(routed, types=2, class_names=["a"])


def test_predictions_are_drawn_with_what_is_given(images, outputs):
    scores, poses = outputs["scores"], outputs["poses"]
    assert len(visualize.draw_predictions(images, scores, None).axes) == 3 * 2
    axes = visualize.draw_predictions(images, scores, list("abc"), poses, outputs["reconstruction"]).axes
    assert [panel.get_title() for panel in axes[:4]] == ["image", "reconstruction", "scores", "poses"]
    np.testing.assert_array_equal(shown(axes[9]), outputs["reconstruction"][2, ..., 0])
    np.testing.assert_allclose([bar.get_width() for bar in axes[10].patches], scores[2])
    colours = [bar.get_facecolor() for bar in axes[10].patches]
    assert colours.count(colours[scores[2].argmax()]) == 1
    np.testing.assert_array_equal(shown(axes[11]), poses[2])
    # Colours of all images are the same, and zero is in their middle.
    limit = np.abs(poses).max()
    assert {panel.images[0].get_clim() for panel in axes[3::4]} == {(-limit, limit)}


def test_several_reconstructions_of_an_image_are_drawn_side_by_side(images, outputs):
    both = np.stack([images, 1 - images], axis=1)
    axes = visualize.draw_predictions(images, outputs["scores"], None, reconstructions=both).axes
    np.testing.assert_array_equal(shown(axes[1])[:, 20:], 1 - images[0, ..., 0])


def test_predictions_of_different_numbers_of_images_are_refused(images, outputs):
    with pytest.raises(ValueError, match=r"same number of images. Received: \{'image': 2, 'scores': 3\}"):
        visualize.draw_predictions(images[:2], outputs["scores"], None)


@pytest.mark.parametrize("channels", [2, 3])
def test_stereo_pairs_lie_side_by_side_and_colours_stay_colours(channels):
    image = np.random.default_rng(4).uniform(size=(1, 5, 6, channels))
    picture = shown(visualize.draw_predictions(image, np.ones((1, 2)), None).axes[0])
    np.testing.assert_array_equal(
        picture, image[0] if channels == 3 else np.hstack([image[0, ..., 0], image[0, ..., 1]])
    )


def test_drawing_does_without_pyplot(images, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it fails
    visualize.draw_reconstructions(images, images)


# Capsules with activations of their own, and EM routing


@pytest.fixture(scope="module")
def matrix_model():
    net = MatrixCapsNet(channels=4, primary_types=2, conv1_types=3, conv2_types=2)
    return fill(net.build((22, 22, 1), 3), seed=1)  # grids of 9x9, 4x4 and 2x2


@pytest.fixture(scope="module")
def pairs():
    return np.random.default_rng(6).uniform(size=(5, 22, 22, 1)).astype("float32")


def test_each_child_of_class_capsules_is_shared_among_the_classes(matrix_model, pairs):
    routed = visualize.coefficients(matrix_model, pairs, num_iterations=4)
    assert routed.shape == (4, 5, 2 * 2 * 2, 3)
    np.testing.assert_allclose(routed[0], 1 / 3, atol=1e-6)
    np.testing.assert_allclose(routed.sum(axis=-1), 1, atol=1e-5)
    assert np.ptp(routed[3], axis=-1).max() > 0.01


def test_children_of_a_convolutional_layer_are_shared_among_positions_too(matrix_model, pairs):
    routed = visualize.coefficients(matrix_model, pairs, layer="conv_capsules1")
    assert routed.shape == (3, 5, 4, 4, 9 * 2, 3)
    # All 9x9 children of both types have parents.
    np.testing.assert_allclose(routed.sum(axis=(2, 3, 4, 5)), 9 * 9 * 2, rtol=1e-5)
    # The child at (0, 0) is seen by the parent at (0, 0) alone, through its first tap.
    np.testing.assert_allclose(routed[:, :, 0, 0, :2].sum(axis=-1), 1, atol=1e-5)


def test_coefficients_of_a_convolutional_layer_are_averaged_and_drawn(matrix_model, pairs):
    routed = visualize.coefficients(matrix_model, pairs, layer="conv_capsules2")
    means = visualize.coefficients_by_type(routed, types=3)
    np.testing.assert_allclose(means[:, 1, 0], routed[..., 1::3, 0].mean(axis=(1, 2, 3, 4)), rtol=1e-5)
    *panels, _colours = visualize.draw_coefficients(routed, types=3).axes
    assert shown(panels[2]).shape == (3, 2)


def test_a_layer_that_does_not_route_has_no_coefficients(matrix_model, pairs):
    for function in (visualize.coefficients, visualize.vote_distances):
        with pytest.raises(ValueError, match=r"a layer that routes is needed. Received: 'conv1', a Conv2D"):
            function(matrix_model, pairs, layer="conv1")


# Votes


def capsules_of(model, layer, images):
    """Poses `[B, H, W, types, 4, 4]` and activations that go into a layer."""
    below = keras.Model(model.input, model.get_layer(layer).input)
    return [keras.ops.convert_to_numpy(part) for part in below(images)]


def distances_by_hand(votes, activations, coefficients):
    """|V - mu| with mu the mean of votes `[B, ..., I, O, 4, 4]`, weighted as Procedure 1 does."""
    weights = (coefficients * activations[..., None])[..., None, None]
    means = (weights * votes).sum(axis=-4) / weights.sum(axis=-4)
    return np.sqrt(np.square(votes - means[..., None, :, :, :]).sum(axis=(-2, -1)))


def test_distances_are_those_of_votes_to_the_classes_means_in_every_iteration(matrix_model, pairs):
    poses, activations = capsules_of(matrix_model, "class_capsules", pairs)
    layer = matrix_model.get_layer("class_capsules")
    kernel = keras.ops.convert_to_numpy(layer.kernel)
    votes = np.einsum("bhwtrk,tkoc->bhwtorc", poses, kernel)
    votes[..., 0, 3] += np.array(layer.coordinates[0])[:, None, None, None]
    votes[..., 1, 3] += np.array(layer.coordinates[1])[:, None, None]
    votes, activations = votes.reshape(5, -1, 3, 4, 4), activations.reshape(5, -1)

    distances, coefficients = visualize.vote_distances(matrix_model, pairs, num_iterations=3)
    assert distances.shape == (3, 5, 2 * 2 * 2, 3)
    np.testing.assert_allclose(coefficients, visualize.coefficients(matrix_model, pairs), atol=1e-4)
    for t in range(3):
        np.testing.assert_allclose(
            distances[t], distances_by_hand(votes, activations, coefficients[t]), rtol=1e-3, atol=1e-4
        )
    assert np.abs(distances[2] - distances[0]).max() > 0.01, "the means have moved"


def test_distances_in_a_convolutional_layer_are_those_to_the_parent_at_each_position(matrix_model, pairs):
    poses, activations = capsules_of(matrix_model, "conv_capsules1", pairs)
    kernel = keras.ops.convert_to_numpy(matrix_model.get_layer("conv_capsules1").kernel)
    distances, coefficients = visualize.vote_distances(matrix_model, pairs, "conv_capsules1")
    assert distances.shape == (3, 5, 4, 4, 9 * 2, 3)
    for h, w in [(0, 0), (1, 3), (3, 2)]:
        window = (slice(None), slice(2 * h, 2 * h + 3), slice(2 * w, 2 * w + 3))
        votes = np.einsum("byxtrk,yxtkoc->byxtorc", poses[window], kernel).reshape(5, 18, 3, 4, 4)
        expected = distances_by_hand(votes, activations[window].reshape(5, 18), coefficients[2, :, h, w])
        np.testing.assert_allclose(distances[2, :, h, w], expected, rtol=1e-3, atol=1e-4)


def test_centres_of_parents_without_activations_are_their_poses_of_all_images():
    layer = DenseCapsules(3, 4, DynamicRouting(), name="classes")
    children = tf.constant(np.random.default_rng(0).normal(size=(2, 5, 6)), "float32")
    np.testing.assert_array_equal(layer.centres_of(children, 2), layer(children, num_iterations=2))


def test_distances_from_normalised_parents_are_those_before_they_are_normalised():
    keras.utils.set_random_seed(0)
    routing = VariationalBayesRouting(logits=True)
    layer = BatchNormalisedClassCapsules(3, routing, name="classes")
    rng = np.random.default_rng(0)
    poses, activations = rng.normal(size=(2, 3, 3, 2, 4, 4)), rng.uniform(size=(2, 3, 3, 2))
    children = tf.constant(poses, "float32"), tf.constant(activations, "float32")
    layer(children)
    fill(layer)
    centres = layer.centres_of(children, 2)
    poses, _ = layer(children, num_iterations=2)
    np.testing.assert_allclose(layer.pose_normalisation(centres), poses, rtol=1e-4, atol=1e-5)
    assert np.abs(centres - poses).max() > 0.1
    votes = np.asarray(layer.votes_of(children))
    columns = np.asarray(centres).swapaxes(-1, -2).reshape(2, 3, 16)
    np.testing.assert_allclose(_means(layer, children, votes, None, 2), columns, rtol=1e-4, atol=1e-5)


def test_distances_under_dynamic_routing_are_to_the_mean_before_squashing(model, images):
    below = keras.Model(model.input, model.get_layer("primary_capsules").output)
    votes = keras.ops.convert_to_numpy(model.get_layer("class_capsules").votes(below(images)))
    distances, coefficients = visualize.vote_distances(model, images)
    means = (coefficients[1][..., None] * votes).sum(axis=1) / coefficients[1].sum(axis=1)[..., None]
    np.testing.assert_allclose(
        distances[1], np.linalg.norm(votes - means[:, None], axis=-1), rtol=1e-4, atol=1e-6
    )


def test_a_histogram_adds_the_coefficients_of_votes_at_each_distance():
    # [T=1, B=2, I=2, O=2]
    distances = [[[[0.0, 0.9], [0.2, 0.3]], [[0.25, 1.0], [0.6, 7.0]]]]
    coefficients = [[[[0.1, 0.2], [0.3, 0.4]], [[0.5, 0.6], [0.7, 0.8]]]]
    counts = visualize.vote_histogram(distances, coefficients, edges=[0, 0.25, 0.5, 1])
    np.testing.assert_allclose(counts, [[[0.4, 0.5, 0.7], [0, 0.4, 0.8]]])
    with pytest.raises(ValueError, match=r"each distance must have a coefficient. Received: \(1, 2\)"):
        visualize.vote_histogram([[1, 2]], [[1, 2, 3]], edges=[0, 1])


def test_histograms_stand_in_a_row_for_each_iteration_and_a_column_for_each_class():
    rng = np.random.default_rng(7)
    distances, coefficients = rng.uniform(0, 2, (3, 1, 50, 2)), rng.uniform(size=(3, 1, 50, 2))
    near = visualize.draw_vote_distances(distances, coefficients, ["cat", "dog"], limit=0.5, bins=10)
    assert [panel.get_title() for panel in near.axes] == ["cat", "dog", "", "", "", ""]
    heights, edges, _ = near.axes[3].patches[0].get_data()
    np.testing.assert_allclose(heights, visualize.vote_histogram(distances, coefficients, edges)[1, 1])
    assert edges[-1] == 0.5
    assert len({panel.get_ylim() for panel in near.axes}) == 1
    whole = visualize.draw_vote_distances(distances, coefficients)
    assert whole.axes[0].patches[0].get_data().edges[-1] == distances.max()
    assert {panel.get_yscale() for panel in whole.axes} == {"log"}
    assert len({panel.get_ylim() for panel in whole.axes}) > 1


# Activations and poses


def test_activation_maps_are_the_activations_of_every_grid(matrix_model, pairs):
    maps = visualize.activation_maps(matrix_model, pairs)
    assert {name: a.shape for name, a in maps.items()} == {
        "primary_capsules": (5, 9, 9, 2), "conv_capsules1": (5, 4, 4, 3), "conv_capsules2": (5, 2, 2, 2)
    }  # fmt: skip
    np.testing.assert_allclose(
        maps["conv_capsules2"], capsules_of(matrix_model, "class_capsules", pairs)[1], atol=1e-5
    )


def test_without_activations_the_length_of_the_pose_is_mapped(model, images):
    maps = visualize.activation_maps(model, images)
    poses = keras.Model(model.input, model.get_layer("primary_capsules").output)(images)
    np.testing.assert_allclose(maps["primary_capsules"], np.linalg.norm(poses, axis=-1), atol=1e-6)
    assert maps["primary_capsules"].shape == (3, 2, 2, 2)


def test_a_model_without_capsules_has_no_activation_maps():
    other = ConvNet(channels=(2, 2), hidden=3).build((8, 8, 1), 2)
    with pytest.raises(ValueError, match=r"capsules on a grid. Received: 'cnn'"):
        visualize.activation_maps(other, np.zeros((1, 8, 8, 1)))


def test_activation_maps_are_drawn_by_image_and_type():
    maps = np.random.default_rng(8).uniform(size=(2, 4, 5, 3))
    *panels, _colours = visualize.draw_activation_maps(maps).axes
    assert len(panels) == 6
    np.testing.assert_array_equal(shown(panels[4]), maps[1, ..., 1])
    assert {panel.images[0].get_clim() for panel in panels} == {(maps.min(), maps.max())}


@pytest.fixture
def split():
    """Six azimuths, in no order, of two toys of each of two classes; grey levels tell the images apart."""
    levels = np.random.default_rng(9).permutation(24)
    azimuth, instance, label = levels % 6, levels // 6 % 2, levels // 12
    images = np.broadcast_to(levels[:, None, None, None], (24, 22, 22, 1)).astype("uint8")
    return ArraySplit(images, label, {"azimuth": azimuth, "instance": instance})


def test_views_of_one_toy_are_ordered_by_the_factor_that_varies(split):
    values, images = visualize.views(split, "azimuth", labels=1, instance=0)
    np.testing.assert_array_equal(values, np.arange(6))
    np.testing.assert_allclose(images[:, 0, 0, 0] * 255, 12 + np.arange(6), rtol=1e-6)


@pytest.mark.parametrize(
    ("along", "fixed", "message"),
    [
        ("azimut", {"labels": 1}, r"of \['azimuth', 'instance', 'labels'\]. Received: \['azimut'\]"),
        ("azimuth", {"labels": 2, "instance": 0}, r"that some image has. Received: \{'labels': 2"),
        ("azimuth", {"labels": 1}, r"one image per azimuth is needed: fix more of \['instance'\]"),
        ("azimuth", {}, r"fix more of \['instance', 'labels'\]"),
    ],
)
def test_views_that_are_not_those_of_one_toy_are_refused(split, along, fixed, message):
    with pytest.raises(ValueError, match=message):
        visualize.views(split, along, **fixed)


def test_the_winning_pose_is_that_of_the_highest_score(matrix_model, pairs):
    outputs = matrix_model.predict(pairs, verbose=0)
    classes, poses = visualize.winning_poses(matrix_model, pairs)
    assert poses.shape == (5, 4, 4)
    for image, winner in enumerate(classes):
        assert outputs["scores"][image, winner] == outputs["scores"][image].max()
        np.testing.assert_allclose(poses[image], outputs["poses"][image, winner], atol=1e-6)


def test_a_model_without_poses_has_no_winning_one(pairs):
    images = keras.Input(pairs.shape[1:])
    model = keras.Model(images, {"scores": keras.layers.Flatten()(images)})
    with pytest.raises(ValueError, match="a model with the outputs scores and poses is needed"):
        visualize.winning_poses(model, pairs)


@pytest.mark.parametrize("other", [0, 2])
def test_entries_of_the_pose_are_drawn_against_the_factor_and_other_winners_stand_out(other):
    poses = np.random.default_rng(10).normal(size=(6, 4, 4))
    values, classes = 20 * np.arange(6), np.where(np.arange(6) == other, 0, 2)
    figure = visualize.draw_poses(values, poses, classes, "azimuth")
    assert len(figure.axes) == 16
    line, others = figure.axes[1 * 4 + 3].lines
    usual = classes == 2
    np.testing.assert_array_equal(line.get_xdata()[usual], values[usual])
    np.testing.assert_array_equal(line.get_ydata()[usual], poses[usual, 1, 3])
    assert np.isnan(line.get_ydata()[other])
    np.testing.assert_array_equal(others.get_xydata(), [[values[other], poses[other, 1, 3]]])
    assert len(visualize.draw_poses(values, poses.reshape(6, 16)[:, :6], classes, "angle").axes) == 6
    with pytest.raises(ValueError, match=r"Received: 6, 5, 6 views"):
        visualize.draw_poses(values, poses[:5], classes, "azimuth")


@pytest.fixture(scope="module")
def drawings(model, images):
    return list(visualize.overview(model, images, list("abc")))


def test_an_overview_draws_grey_levels_as_what_they_mean(model, images):
    levels = np.round(255 * images).astype(np.uint8)
    drawn = [next(visualize.overview(model, each)).figure for each in (levels, levels / np.float32(255))]
    first, second = (
        [panel.images[0].get_array() for panel in figure.axes if panel.images] for figure in drawn
    )
    assert len(first) > 0
    np.testing.assert_array_equal(first, second)


def test_an_overview_draws_whatever_a_model_has(drawings, matrix_model, pairs):
    assert [drawing.name for drawing in drawings] == [
        "reconstructions", "perturbations", "activations_primary_capsules",
        "coefficients_class_capsules", "votes_class_capsules",
        "coefficients_over_image_class_capsules", "votes_over_image_class_capsules",
    ]  # fmt: skip
    drawn = {
        drawing.name: drawing.figure for drawing in visualize.overview(matrix_model, pairs[:2], list("abc"))
    }
    grids, routed = ["primary_capsules", "conv_capsules1"], ["conv_capsules1", "class_capsules"]
    assert {f"activations_{name}" for name in grids} | {f"votes_{name}" for name in routed} <= set(drawn)
    assert shown(drawn["coefficients_conv_capsules1"].axes[0]).shape == (
        2,
        3,
    )  # types of children, of parents
    assert drawn["votes_class_capsules"].axes[1].get_title() == "b"


@pytest.mark.parametrize(
    ("architecture", "drawings"),
    [
        (ConvNet(channels=(2, 2), hidden=3), []),
        (VariationalAutoencoder(latents=2, channels=2, hidden=3), ["reconstructions"]),
    ],
)
def test_an_overview_of_a_network_without_routed_capsules_draws_what_its_roles_allow(
    architecture, drawings, images
):
    drawn = visualize.overview(architecture.build((20, 20, 1), 2), images)
    assert [drawing.name for drawing in drawn] == drawings


INVERTED = InvertedAttentionCapsNet((4, 4), (1, 1), primary_types=3, conv_types=(2,))
NORMALISED = MatrixCapsNet(channels=4, primary_types=2, conv1_types=3, conv2_types=2, normalise=True)


@pytest.mark.parametrize(
    ("architecture", "grids", "over_image"),
    [
        (INVERTED, {"primary_capsules": 3}, []),
        (NORMALISED, {"primary_capsules": 2, "conv_capsules1": 3, "conv_capsules2": 2}, ["class_capsules"]),
        (HeinsenCapsNet((4, 4), (2, 2), types=3), {"primary_activations": 3}, ["capsules"]),
        (SelfRoutingCapsNet((4, 6), (2, 2), primary_types=3), {"primary_activations": 3}, ["scores"]),
    ],
    ids=lambda value: getattr(value, "routing", ""),
)
def test_an_overview_draws_capsules_whose_activations_lie_elsewhere_or_nowhere(
    architecture, grids, over_image
):
    model = architecture.build((20, 20, 1), 3)
    images = np.random.default_rng(0).uniform(size=(1, 20, 20, 1)).astype("float32")
    drawn = {drawing.name: drawing.figure for drawing in visualize.overview(model, images)}
    prefix = "activations_"
    types = {name.removeprefix(prefix): len(drawn[name].axes) - 1 for name in drawn if prefix in name}
    assert types == grids
    assert [name for name in drawn if "coefficients_over" in name] == [
        f"coefficients_over_image_{layer}" for layer in over_image
    ]
    if architecture is INVERTED:
        assert shown(drawn["coefficients_class_capsules"].axes[0]).shape == (2, 3)


def test_an_overview_explains_each_drawing_in_two_sentences(drawings):
    for drawing in drawings:
        assert len(re.findall(r"[^.]{20,}\.(?: |$)", drawing.caption)) == 2, drawing.caption
        assert drawing.title


def test_coefficients_of_an_overview_are_those_of_the_first_image(drawings, model, images):
    (figure,) = [d.figure for d in drawings if d.name == "coefficients_class_capsules"]
    first, mixed = (
        visualize.coefficients_by_type(visualize.coefficients(model, some), types=2)[-1]
        for some in (images[:1], images)
    )
    np.testing.assert_allclose(shown(figure.axes[-2]), first, atol=1e-6)
    assert np.abs(first - mixed).max() > 1e-5


def test_an_overview_needs_a_model_that_knows_its_architecture(model, images):
    with pytest.raises(ValueError, match="needs a model that an architecture has built"):
        list(visualize.overview(keras.Model(model.input, model.output), images))


@pytest.mark.slow
@pytest.mark.parametrize("name", capszoo.list_models(pretrained=True))
def test_an_overview_of_every_published_network_is_drawn(name):
    model = capszoo.load(name)
    pictures = np.random.default_rng(0).uniform(size=(2, *model.raw_shape)).astype("float32")
    images = np.asarray(model.preprocess(pictures))
    drawn = [drawing.name for drawing in visualize.overview(model, images, model.class_names)]
    assert len(set(drawn)) == len(drawn)
    for layer in routed_layers(model):
        assert f"coefficients_{layer.name}" in drawn
