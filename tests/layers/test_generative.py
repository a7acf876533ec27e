"""The density of parts given objects, and the pictures that parts make, beside the paper's equations in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from oracles import probabilistic_capsules as oracle
from support import fill

from capszoo.layers import Divergence, PartsFromObjects, SampledCapsules, TemplateRenderer
from capszoo.layers.distributions import distributions
from capszoo.layers.generative import compose, presence_density
from capszoo.layers.templates import composite, warp

OBJECTS, PARTS = 3, 4
CONSTANTS = {
    "temperature": 0.8,
    "clutter": 0.05,
    "clutter_deviation": 1.5,
    "off_deviation": 0.9,
    "presence": 0.2,
    "pixel_deviation": 0.2,
}


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def capsules(rng):
    """Objects and parts of two images: poses and logits, of parts near the identity."""
    return (
        0.3 * rng.normal(size=(2, OBJECTS, 2, 3)),
        2 * rng.normal(size=(2, OBJECTS)),
        oracle.IDENTITY + 0.3 * rng.normal(size=(2, PARTS, 2, 3)),
        2 * rng.normal(size=(2, PARTS)),
    )


@pytest.fixture
def selection(capsules):
    names = ("temperature", "clutter", "clutter_deviation", "off_deviation")
    layer = PartsFromObjects(OBJECTS, PARTS, **{name: CONSTANTS[name] for name in names})
    layer(*as_float32(capsules))
    fill(layer)
    layer.common_offsets.assign(layer.common_offsets + oracle.IDENTITY)
    return layer


def as_float32(arrays):
    return [np.asarray(array, "float32") for array in arrays]


def weights_of(layer):
    """The weights of a `PartsFromObjects` as the oracle takes them."""
    values = {weight.name: np.asarray(weight, "float64") for weight in layer.weights}
    return {
        "affinities": oracle.sigmoid(values["affinities"]),
        "presence_logits": values["part_logits"],
        "offsets": values["common_offsets"][:, None] + values["offsets"],
        "deviations": 0.1 + np.log1p(np.exp(values["common_widths"][:, None] + values["widths"])),
    }


def test_the_density_of_each_part_is_that_of_the_paper_with_its_parent_summed_out(selection, capsules):
    density, coefficients = selection(*as_float32(capsules))
    for image in range(2):
        expected, shares = oracle.log_parts(
            *(array[image] for array in capsules), weights_of(selection), CONSTANTS
        )
        np.testing.assert_allclose(density[image], expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(coefficients[image], shares, rtol=1e-3, atol=1e-5)


def test_together_they_are_the_sum_over_every_selection_of_parents(selection, capsules):
    density, _ = selection(*as_float32(capsules))
    for image in range(2):
        expected = oracle.log_parts_brute_force(
            *(array[image] for array in capsules), weights_of(selection), CONSTANTS
        )
        np.testing.assert_allclose(np.sum(density[image]), expected, rtol=1e-4)


def test_an_object_that_is_absent_gets_no_part(selection, capsules):
    poses, logits, *parts = as_float32(capsules)
    logits[:, 1] = -100
    density, coefficients = selection(poses, logits, *parts)
    assert np.max(coefficients[..., 2]) < 1e-30
    poses[:, 1] = 5
    np.testing.assert_allclose(selection(poses, logits, *parts)[0], density, rtol=1e-6)


def test_without_objects_all_parts_are_clutter(selection, capsules):
    poses, logits, *parts = as_float32(capsules)
    _, coefficients = selection(poses, np.full_like(logits, -100), *parts)
    np.testing.assert_allclose(coefficients[..., 0], 1, rtol=1e-6)


def test_the_identity_composed_with_a_map_is_the_map_and_points_go_through_both(rng):
    first, second = as_float32(rng.normal(size=(2, 5, 2, 3)))
    point = np.array([0.3, -0.7, 1.0])
    np.testing.assert_allclose(compose(ops.convert_to_tensor(oracle.IDENTITY, "float32"), first), first)
    through = [a @ np.append(b @ point, 1) for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(np.asarray(compose(first, second)) @ point, through, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("logit", [-200.0, -20.0, 0.0, 20.0, 200.0])
def test_gradients_are_finite_however_certain_a_presence_is(selection, capsules, logit):
    poses, logits, part_poses, part_logits = map(tf.constant, as_float32(capsules))
    logits, part_logits = tf.fill(logits.shape, logit), tf.fill(part_logits.shape, logit)
    renderer = TemplateRenderer(PARTS, (8, 8, 1), 4)
    divergence = Divergence()
    with tf.GradientTape() as tape:
        tape.watch([poses, logits, part_poses, part_logits])
        density, _ = selection(poses, logits, part_poses, part_logits)
        zero = tf.zeros_like
        cost = divergence(poses, logits, zero(logits), zero(part_logits), density)
        total = tf.reduce_sum(cost) + tf.reduce_sum(renderer(part_poses, ops.sigmoid(part_logits)))
    watched = [poses, logits, part_poses, part_logits, *selection.weights, *renderer.weights]
    for gradient in tape.gradient(total, watched):
        assert np.all(np.isfinite(gradient))


def test_presences_have_the_density_of_relaxed_bernoulli_variables():
    presence, logit, temperature = np.array([0.05, 0.4, 0.9]), 0.7, 0.6
    logits = np.log(presence / (1 - presence))
    expected = oracle.log_concrete_logit(logits, logit, temperature)
    np.testing.assert_allclose(
        presence_density(*as_float32([logits, logit]), temperature), expected, rtol=1e-4
    )
    relaxed = distributions().RelaxedBernoulli(temperature, logits=logit)
    jacobian = np.log(presence * (1 - presence))
    density = relaxed.log_prob(presence.astype("float32")) + jacobian
    np.testing.assert_allclose(density, expected, rtol=1e-3)


def test_distributions_are_those_of_tensorflow_probability():
    import tensorflow_probability

    assert distributions().Normal is tensorflow_probability.distributions.Normal
    assert isinstance(distributions().Logistic(0.0, 1.0).log_prob(ops.zeros(3)), tf.Tensor)


# Drawing from the posterior


def test_presences_are_drawn_as_often_as_their_probability_says():
    keras.utils.set_random_seed(1)
    layer = SampledCapsules(0.5)
    logits = np.tile(np.float32([-2, 0, 1]), (20000, 1))
    _, presence, _, _ = layer(np.zeros((20000, 3, 2, 3), "float32"), logits, training=True)
    on = (np.asarray(presence) > 0.5).mean(axis=0)
    np.testing.assert_allclose(on, oracle.sigmoid(np.array([-2.0, 0, 1])), atol=0.02)


def test_outside_training_nothing_is_drawn():
    layer = SampledCapsules(2.0)
    poses, logits = np.full((1, 2, 2, 3), 0.3, "float32"), np.float32([[4, -6]])
    sampled, presence, sampled_logits, _ = layer(poses, logits)
    np.testing.assert_array_equal(sampled, poses)
    np.testing.assert_allclose(sampled_logits, logits / 2)
    np.testing.assert_allclose(presence, oracle.sigmoid(logits / 2), rtol=1e-6)


def test_a_gaussian_posterior_draws_around_its_means_and_counts_its_entropy():
    keras.utils.set_random_seed(1)
    layer = SampledCapsules()
    shape = (5000, 2, 2, 3)
    poses, deviations = np.full(shape, 0.3, "float32"), np.full(shape, np.log(0.2), "float32")
    logits = np.zeros(shape[:2], "float32")
    sampled, _, drawn, density = layer(poses, logits, deviations, training=True)
    assert np.std(sampled) == pytest.approx(0.2, rel=0.02)
    assert np.mean(sampled) == pytest.approx(0.3, abs=0.01)
    expected = oracle.log_normal(np.asarray(sampled[7, 1], "float64"), 0.3, 0.2)
    expected += oracle.log_concrete_logit(float(drawn[7, 1]), 0.0, 1.0)
    assert float(density[7, 1]) == pytest.approx(expected, rel=1e-4)


# Pictures


def poses_of(rng, *shape):
    return oracle.IDENTITY + rng.normal(size=(*shape, 2, 3)) * [0.3, 0.3, 0.6]


def test_a_warped_template_is_that_of_the_loop_over_pixels(rng):
    templates, poses = rng.random((3, 6, 6, 2)), poses_of(rng, 2, 3)
    drawn = warp(*as_float32([templates, poses]), (9, 11))
    for image, part, channel in np.ndindex(2, 3, 2):
        expected = oracle.warp(templates[part, ..., channel], poses[image, part], (9, 11), 6)
        np.testing.assert_allclose(drawn[image, part, ..., channel], expected, atol=2e-5)


def test_the_identity_draws_a_template_in_the_middle_as_it_is(rng):
    template = rng.random((1, 6, 6, 1)).astype("float32")
    drawn = warp(template, np.float32(oracle.IDENTITY)[None, None], (10, 10))
    np.testing.assert_allclose(drawn[0, 0, 2:8, 2:8], template[0], atol=1e-6)
    assert np.sum(drawn) == pytest.approx(template.sum(), rel=1e-5)


def test_a_translation_by_one_moves_it_by_half_its_width(rng):
    template = rng.random((1, 4, 4, 1)).astype("float32")
    pose = np.float32([[1, 0, 1], [0, 1, -1]])
    drawn = warp(template, pose[None, None], (8, 8))
    np.testing.assert_allclose(drawn[0, 0, 0:4, 4:8], template[0], atol=1e-6)


def test_a_pose_without_inverse_draws_finite_pixels_and_gradients(rng):
    templates, poses = tf.constant(rng.random((1, 4, 4, 1)), tf.float32), tf.zeros((1, 1, 2, 3))
    with tf.GradientTape() as tape:
        tape.watch([templates, poses])
        drawn = warp(templates, poses, (8, 8))
    for array in (drawn, *tape.gradient(drawn, [templates, poses])):
        assert np.all(np.isfinite(array))


def test_parts_are_laid_over_each_other_by_the_operator_of_the_paper(rng):
    colours, alphas = rng.random((1, 5, 4, 3, 1)), rng.random((1, 5, 4, 3, 1))
    alphas[0, 2] = 0
    picture, opacity = np.zeros((4, 3)), np.ones((4, 3))
    for colour, alpha in zip(colours[0, ..., 0], alphas[0, ..., 0], strict=True):
        picture, opacity = oracle.over(colour, alpha, picture, opacity)
    np.testing.assert_allclose(composite(*as_float32([colours, alphas]))[0, ..., 0], picture, rtol=1e-5)


def test_a_picture_is_that_of_the_oracle(rng):
    layer = TemplateRenderer(3, (8, 8, 1), 4)
    poses, presence = poses_of(rng, 2, 3), rng.random((2, 3))
    pictures = layer(*as_float32([poses, presence]))
    templates, alphas = (
        oracle.sigmoid(np.asarray(weight, "float64")[..., 0]) for weight in (layer.templates, layer.alphas)
    )
    for image in range(2):
        expected = oracle.render(templates, alphas, poses[image], presence[image], (8, 8))
        np.testing.assert_allclose(pictures[image, ..., 0], expected, atol=2e-5)


def test_absent_parts_leave_the_canvas_black(rng):
    layer = TemplateRenderer(3, (8, 8, 1), 4)
    assert not np.any(layer(poses_of(rng, 2, 3).astype("float32"), np.zeros((2, 3), "float32")))
