"""Objects predict parts, and a part has one parent: equations 6 to 8 of Kiefer et al. 2022."""

import math

import keras
import numpy as np
import pytest
from oracles import attention_capsules as oracle
from scipy.special import ive
from support import fill

from capszoo.layers import Patches, TopDownCapsules
from capszoo.routing import AttentionRouting, log_bessel_i, log_von_mises_fisher

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def tensor(numbers):
    return keras.ops.convert_to_tensor(numbers, dtype="float32")


def made(rule="log_density", scale=0.8, noise=0.2, parts=5, dimensions=6):
    """A layer with known weights; poses of 3 objects and parts of 2 images."""
    layer = TopDownCapsules(AttentionRouting(name="attention"), noise, rule, name="layer")
    rng = np.random.default_rng(3)
    poses = rng.normal(size=(2, 3, 4)).astype("float32")
    parts = rng.normal(size=(2, parts, dimensions)).astype("float32")
    layer(poses, parts)
    return fill(layer, scale=scale), poses, parts


def ingredients(layer, poses, image, part):
    """Means `[n, d]`, deviations `[n]`, concentrations `[n]` and the query `[d]` of a part, in float64."""
    weights = {weight.name: np.float64(weight) for weight in layer.weights}
    predictions = np.einsum("nk,nkmd->nmd", poses[image], weights["kernel"]) + weights["bias"]
    query = oracle.attention(predictions[None], weights["query"], 3)["poses"][0, part]
    sigmas = np.sqrt(layer.noise**2 + np.exp(2 * weights["log_scales"][:, part]))
    return predictions[:, part], sigmas, np.exp(weights["log_concentrations"][:, part]), query


@pytest.mark.parametrize("rule", ["log_density", "density"])
def test_the_density_of_parts_is_the_product_of_the_mixtures_of_the_oracle(rule):
    layer, poses, parts = made(rule)
    logs = layer.distribution(poses).log_prob(parts)
    for image in range(2):
        expected = 0.0
        for part in range(parts.shape[1]):
            means, sigmas, kappas, query = ingredients(layer, poses, image, part)
            expected += oracle.log_part_density(parts[image, part], query, means, sigmas, kappas, rule)
        np.testing.assert_allclose(logs[image], expected, **CLOSE)


def test_densities_beyond_the_largest_float_still_make_a_parse():
    layer, poses, parts = made("density", dimensions=32)
    layer.log_concentrations.assign(np.full(layer.log_concentrations.shape, 9.0))
    layer.kernel.assign(np.zeros(layer.kernel.shape))  # all objects predict the query's direction
    blend, parse = layer(poses, parts)
    assert np.isfinite(blend).all()
    np.testing.assert_allclose(np.sum(parse, axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("rule", ["log_density", "density"])
def test_the_parse_is_bayes_rule_and_the_blend_what_parents_predict(rule):
    layer, poses, parts = made(rule)
    blend, parse = layer(poses, parts)
    for image, part in np.ndindex(2, parts.shape[1]):
        means, sigmas, kappas, query = ingredients(layer, poses, image, part)
        expected = oracle.responsibilities(parts[image, part], query, means, sigmas, kappas, rule)
        np.testing.assert_allclose(parse[image, part], expected, **CLOSE)
        np.testing.assert_allclose(blend[image, part], expected @ means, **CLOSE)


def test_a_part_drawn_from_one_prediction_is_given_to_that_parent():
    layer, poses, _ = made(scale=1.5, noise=0.01)
    layer.log_scales.assign(np.full((3, 5), -4.0))
    predictions = np.asarray(layer.predictions(poses))
    for parent in range(3):
        _, parse = layer(poses, predictions[:, parent])
        np.testing.assert_allclose(np.asarray(parse)[..., parent], 1, atol=1e-3)


def integral(query_is_part):
    """The integral over a part in the plane, by the mean over a fine grid."""
    layer, poses, _ = made(scale=1.0, parts=1, dimensions=2)
    layer.log_concentrations.assign(np.full((3, 1), np.log(20.0)))
    step = 0.05
    axis = np.arange(-12, 12, step)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 1, 2).astype("float32")
    repeated = np.repeat(poses[:1], len(grid), axis=0)
    query = grid if query_is_part else None
    return np.exp(layer.distribution(repeated, query).log_prob(grid)).sum() * step**2


def test_gates_at_the_query_of_equation_6_make_a_density():
    assert abs(integral(query_is_part=False) - 1) < 1e-3


def test_equation_7_as_printed_is_no_density():
    value = integral(query_is_part=True)
    assert abs(value - 1) > 0.1
    assert 0 < value < 3  # between nothing and the number of parents


def test_samples_are_around_the_predictions():
    layer, poses, parts = made(noise=1e-3)
    layer.log_scales.assign(np.full((3, 5), -6.0))
    samples = np.asarray(layer.distribution(poses).sample(20, seed=1))
    assert samples.shape == (20, *parts.shape)
    distances = np.linalg.norm(samples[:, :, None] - np.asarray(layer.predictions(poses)), axis=-1)
    assert distances.min(axis=2).max() < 0.05


@pytest.mark.parametrize("order", [0, 0.5, 1, 3, 7, 15])
def test_the_bessel_function_is_that_of_scipy_on_both_sides_of_the_switch(order):
    x = np.concatenate([np.geomspace(1e-3, 1e4, 200), [49.9, 49.999, 50.0, 50.1]]).astype("float32")
    expected = np.log(ive(order, x.astype("float64"))) + x
    np.testing.assert_allclose(
        log_bessel_i(order, keras.ops.convert_to_tensor(x)), expected, rtol=4e-6, atol=2e-5
    )


@pytest.mark.parametrize("order", [3, 7, 15])
def test_the_slope_of_the_bessel_function_is_that_of_scipy(order):
    import tensorflow as tf

    x = tf.constant([0.1, 1.0, 10.0, 49.0, 51.0, 300.0], "float64")
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = log_bessel_i(order, x)
    np.testing.assert_allclose(y, np.log(ive(order, x)) + x, rtol=1e-8)
    # I'_v / I_v = I_(v+1) / I_v + v / x
    expected = ive(order + 1, x) / ive(order, x) + order / x
    np.testing.assert_allclose(tape.gradient(y, x), expected, rtol=1e-6)


def test_an_order_that_the_series_cannot_bear_is_refused():
    with pytest.raises(ValueError, match=r"in \[0, 15\]. Received: 16"):
        log_bessel_i(16, keras.ops.ones(3))


@pytest.mark.parametrize("kappa", [0.0, 1e-38, 1e-30, 1e-9, 1e-7, 9e-7, 2e-6])
@pytest.mark.parametrize("d", [2, 3, 16, 32])
def test_a_concentration_near_zero_leaves_every_direction_alike(d, kappa):
    import tensorflow as tf

    v, concentration = np.eye(d)[:2], tf.constant(kappa, "float32")
    with tf.GradientTape() as tape:
        tape.watch(concentration)
        value = log_von_mises_fisher(tensor(v), tensor(v[0]), concentration)
    # One over the area of the sphere, 2 pi^(d / 2) / Gamma(d / 2).
    uniform = math.lgamma(d / 2) - math.log(2) - d / 2 * math.log(math.pi)
    np.testing.assert_allclose(value, [uniform, uniform], rtol=1e-5, atol=1e-5)
    # The mean cosine under a uniform density is zero.
    np.testing.assert_allclose(tape.gradient(value, concentration), 1.0, atol=1e-5)


@pytest.mark.parametrize("d", [1, 33])
def test_directions_of_too_few_and_too_many_dimensions_are_refused(d):
    with pytest.raises(ValueError, match="order"):
        log_von_mises_fisher(tensor(np.ones((2, d))), tensor(np.ones(d)), tensor(1.0))


@pytest.mark.parametrize("kappa", [0.1, 5.0, 200.0])
def test_directions_have_the_density_of_the_oracle_whatever_their_lengths(kappa):
    rng = np.random.default_rng(0)
    for d in (2, 3, 8, 16):
        v, mean = rng.normal(size=(2, d))
        value = log_von_mises_fisher(tensor(3 * v), tensor(mean), tensor(kappa))
        np.testing.assert_allclose(value, oracle.log_von_mises_fisher(v, mean, kappa), **CLOSE)


def test_the_density_of_directions_integrates_to_one_on_the_circle():
    angles = np.linspace(0, 2 * np.pi, 1000, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    density = np.exp(log_von_mises_fisher(tensor(circle), tensor([0.3, -2.0]), tensor(4.0)))
    np.testing.assert_allclose(density.mean() * 2 * np.pi, 1, rtol=1e-4)


def test_attention_over_many_iterations_leaves_a_part_one_parent():
    """Predictions of very different directions: the positive feedback of section 4.1."""
    votes = 4 * np.eye(3, 6, dtype="float32")[None, :, None, :]  # [1, 3, 1, 6]
    routing = AttentionRouting(10)
    routing.build(votes.shape)
    routing.query.assign([[0.3, 0.2, 0.1, 0, 0, 0]])
    _, _, history = routing(votes, return_history=True)
    largest = np.asarray(history).max(axis=2).ravel()
    assert largest[0] < 0.6
    assert largest[-1] > 0.99


def test_patches_are_squares_of_the_image_and_can_be_put_together_again():
    images = np.arange(2 * 6 * 4 * 2, dtype="float32").reshape(2, 6, 4, 2)
    layer = Patches(2)
    parts = np.asarray(layer(images))
    assert parts.shape == (2, 6, 8)
    np.testing.assert_array_equal(parts[1, 3], images[1, 2:4, 2:4].ravel())
    np.testing.assert_array_equal(layer.assemble(parts), images)


def test_images_that_are_no_whole_number_of_patches_are_refused():
    with pytest.raises(ValueError, match="multiple of 4"):
        Patches(4)(np.zeros((1, 10, 8, 1), "float32"))


def test_another_rule_is_refused():
    with pytest.raises(ValueError, match=r"'log_density' or 'density'\. Received: 'bayes'"):
        TopDownCapsules(AttentionRouting(), rule="bayes")
