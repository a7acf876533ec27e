import sys

import keras
import numpy as np
import pytest

from capszoo import visualize
from capszoo.models import DynamicCapsNet

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
    with pytest.raises(ValueError, match=r"a model with a decoder.*Received: 'dynamic'"):
        function(bare, images)


@pytest.mark.parametrize("function", ["reconstructions", "perturbations", "coefficients"])
def test_images_of_another_shape_are_refused(function, model):
    with pytest.raises(
        ValueError, match=r"images must be \[B, 20, 20, 1\]. Received shape: \(2, 28, 28, 1\)"
    ):
        getattr(visualize, function)(model, np.zeros((2, 28, 28, 1)))


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


def test_images_beyond_one_batch_keep_their_coefficients(model, images, monkeypatch):
    whole = visualize.coefficients(model, images)
    monkeypatch.setattr(visualize, "_BATCH", 2)
    np.testing.assert_allclose(visualize.coefficients(model, images), whole, atol=1e-6)


def test_a_model_without_class_capsules_has_no_coefficients():
    other = keras.Sequential([keras.Input((20, 20, 1)), keras.layers.Flatten()])
    with pytest.raises(ValueError, match="a layer named 'class_capsules'"):
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
