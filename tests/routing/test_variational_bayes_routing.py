"""Variational-Bayes routing on grids, beyond what every routing obeys (`conformance/test_routing.py`)."""

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from oracles import variational_bayes_routing as oracle
from support import arrays

from capszoo.layers import ConvCapsules
from capszoo.routing import Neighbourhood, VariationalBayesRouting, digamma

pytestmark = pytest.mark.usefixtures("eagerly")

GRIDS = [(3, 1, (5, 5)), (3, 2, (7, 6)), (2, 3, (5, 6)), (1, 1, (3, 2))]
every_grid = pytest.mark.parametrize(("kernel_size", "strides", "child_grid"), GRIDS)
BETAS = {"beta_u": np.array([0.1, -0.2, 0.3]), "beta_a": np.array([-0.3, 0.1, 0.4])}
TYPES, PARENTS, DEPTH = 2, 3, 4


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def on_grid(kernel_size, strides, child_grid, images=2):
    """A neighbourhood, votes `[B, H', W', K, K, types, O, D]` and activations `[B, H, W, types]`."""
    place = Neighbourhood(kernel_size, strides, child_grid)
    votes = numbers(images, *place.parent_grid, kernel_size, kernel_size, TYPES, PARENTS, DEPTH)
    return place, votes, np.random.default_rng(1).uniform(0.05, 1, size=(images, *child_grid, TYPES))


def made(place, **options):
    """Routing in the neighbourhood `place`, with known betas."""
    layer = VariationalBayesRouting(**options)
    layer.neighbourhood = place
    layer.build((None, *place.parent_grid, place.taps * TYPES, PARENTS, DEPTH))
    layer.beta_u.assign(BETAS["beta_u"])
    layer.beta_a.assign(BETAS["beta_a"])
    return layer


def flat(votes):
    """`[B, H', W', K, K, types, O, D]` -> `[B, H', W', I, O, D]`."""
    return votes.reshape(*votes.shape[:3], -1, *votes.shape[-2:])


def seen(place, activations):
    """What each parent sees of activations `[B, H, W, types]`: `[B, H', W', I]`."""
    flattened = activations.reshape(len(activations), -1)
    return flattened[:, place.children(TYPES)].reshape(len(activations), *place.parent_grid, -1)


def per_child(place, coefficients):
    """The sum of each child's coefficients `[B, H', W', I, O]`, and its parents: `[B, C]`, `[C]`."""
    children = place.children(TYPES)
    size = np.prod(place.child_grid) * TYPES
    sums = np.zeros((len(coefficients), size))
    shares = coefficients.sum(axis=-1).reshape(len(coefficients), -1)
    np.add.at(sums, (slice(None), children.ravel()), shares)
    return sums, np.bincount(children.ravel(), minlength=size)


# Values and gradients


@every_grid
@pytest.mark.parametrize("logits", [False, True])
def test_on_a_grid_it_agrees_with_the_oracle(kernel_size, strides, child_grid, logits):
    place, votes, activations = on_grid(kernel_size, strides, child_grid)
    layer = made(place, dtype="float64", logits=logits)
    poses, parents, history = layer(flat(votes), seen(place, activations), return_history=True)
    expected = oracle.variational_bayes_routing(votes, activations, **BETAS, stride=strides)
    close = {"rtol": 1e-6, "atol": 1e-9}
    np.testing.assert_allclose(poses, expected["poses"], **close)
    np.testing.assert_allclose(parents, expected["activation_logits" if logits else "activations"], **close)
    for coefficients, other in zip(history, expected["coefficients"], strict=True):
        np.testing.assert_allclose(coefficients, np.reshape(other, coefficients.shape), **close)


@pytest.mark.parametrize("strides", [1, 2])
def test_on_a_grid_its_gradients_are_the_slopes_of_the_oracle(strides):
    place, votes, activations = on_grid(3, strides, (5, 4), images=1)
    layer = made(place, dtype="float64")
    of_poses = numbers(1, *place.parent_grid, PARENTS, DEPTH, seed=5)
    of_parents = numbers(1, *place.parent_grid, PARENTS, seed=6)
    points = {"votes": votes, "activations": activations, **BETAS}

    def slope(name, direction, step=1e-6):
        total = []
        for sign in (1, -1):
            moved = {**points, name: points[name] + sign * step * direction}
            result = oracle.variational_bayes_routing(**moved, stride=strides)
            total.append(np.sum(of_poses * result["poses"]) + np.sum(of_parents * result["activations"]))
        return (total[0] - total[1]) / (2 * step)

    children = tf.constant(activations)
    votes = tf.constant(flat(votes))
    with tf.GradientTape() as tape:
        tape.watch([votes, children])
        gathered = tf.gather(tf.reshape(children, (1, -1)), place.children(TYPES), axis=1)
        poses, parents = layer(votes, tf.reshape(gathered, (1, *place.parent_grid, -1)))
        value = tf.reduce_sum(of_poses * poses) + tf.reduce_sum(of_parents * parents)
    found = arrays(tape.gradient(value, [votes, children, layer.beta_u, layer.beta_a]))
    for (name, point), gradient in zip(points.items(), found, strict=True):
        for seed in range(3):
            direction = numbers(*point.shape, seed=10 + seed)
            product = np.sum(gradient.reshape(point.shape) * direction)
            np.testing.assert_allclose(product, slope(name, direction), rtol=1e-4, atol=1e-6, err_msg=name)


# Coefficients and parents


@every_grid
def test_each_childs_coefficients_sum_to_one_over_all_its_parents(kernel_size, strides, child_grid):
    place, votes, activations = on_grid(kernel_size, strides, child_grid)
    _, _, history = made(place)(flat(votes), seen(place, activations), return_history=True)
    first, *later = np.asarray(history)
    sums, count = per_child(place, first)
    np.testing.assert_allclose(sums, np.broadcast_to(count, sums.shape), rtol=1e-5)
    for coefficients in later:
        sums, count = per_child(place, coefficients)
        np.testing.assert_allclose(sums[:, count > 0], 1, rtol=2e-5)


def test_parents_without_data_have_the_prior():
    place, votes, activations = on_grid(3, 1, (5, 5))
    poses, logits = made(place, logits=True, dtype="float64")(flat(votes), 0 * seen(place, activations))
    np.testing.assert_array_equal(poses, np.zeros(poses.shape))
    # E ln pi = psi(1) - psi(3) = -3/2; nu = 5: E ln|Lambda| = psi(5/2) + psi(2) + psi(3/2) + psi(1) + 4 ln 2.
    log_determinant = scipy.special.digamma([2.5, 2.0, 1.5, 1.0]).sum() + 4 * np.log(2)
    entropy = 2 * np.log(2 * np.pi * np.e) - log_determinant / 2
    expected = BETAS["beta_a"] - (np.exp(-1.5) * entropy + BETAS["beta_u"])
    np.testing.assert_allclose(logits, np.broadcast_to(expected, logits.shape), rtol=1e-8)


def test_children_follow_the_parent_that_most_of_them_agree_on():
    # Of 21 children all but one agree on the first parent; their votes for the second are spread.
    votes = 3 * numbers(1, 21, 2, DEPTH)
    votes[0, :20, 0] = pose = np.array([0.2, -0.4, 0.1, 0.0])
    layer = VariationalBayesRouting()
    layer.build(votes.shape)
    poses, activations, history = layer(votes, np.ones((1, 21)), return_history=True)
    # The prior has the weight of one child.
    np.testing.assert_allclose(poses[0, 0], pose * 20 / 21, atol=0.02)
    assert np.min(np.asarray(history)[-1, 0, :20, 0]) > 0.98
    assert activations[0, 0] > 0.5 > activations[0, 1]


def test_votes_far_beyond_the_range_of_exp_are_shared_by_logarithms():
    place, votes, activations = on_grid(3, 1, (5, 5))
    votes = 1e6 * votes
    poses, parents, history = made(place)(flat(votes), seen(place, activations), return_history=True)
    for array in arrays([poses, parents, history]):
        assert np.all(np.isfinite(array))
    sums, _ = per_child(place, np.asarray(history)[-1])
    np.testing.assert_allclose(sums, 1, rtol=2e-5)


def test_votes_of_another_grid_are_refused():
    layer = VariationalBayesRouting()
    layer.neighbourhood = Neighbourhood(3, 1, (5, 5))
    for shape in [(None, 3, 4, 18, 3, 4), (None, 3, 3, 17, 3, 4), (None, 18, 3, 4)]:
        with pytest.raises(ValueError, match=r"votes of the grid \(3, 3\)"):
            layer.build(shape)


# From poses to parents


@pytest.mark.parametrize("strides", [1, 2])
def test_images_that_are_routed_one_by_one_have_values_and_gradients_of_votes(strides, monkeypatch):
    monkeypatch.setattr("capszoo.routing.by_image.AT_ONCE", 0)
    poses = numbers(3, 5, 6, 2, 4, 4, seed=3)
    activations = np.random.default_rng(4).uniform(0.05, 1, size=(3, 5, 6, 2))
    found = []
    # float64 is routed by votes.
    for dtype in ("float32", "float64"):
        layer = ConvCapsules(3, 3, strides, VariationalBayesRouting(dtype=dtype), dtype=dtype)
        layer.build((poses.shape, activations.shape))
        layer.kernel.assign(0.5 * numbers(*layer.kernel.shape, seed=5))
        inputs = tf.constant(poses.astype(dtype)), tf.constant(activations.astype(dtype))
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs)
            value = sum(tf.reduce_sum(tf.sin(3 * part)) for part in outputs)
        found.append(arrays([outputs, tape.gradient(value, [*inputs, layer.kernel.value])]))
    for part, expected in zip(*found, strict=True):
        assert np.linalg.norm(part - expected) <= 1e-4 * (np.linalg.norm(expected) + 0.1)


# Digamma


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float64", 1e-9)])
def test_digamma_and_its_gradient_are_scipys(dtype, tolerance):
    x = np.geomspace(1e-3, 1e6, 2000).astype(dtype)
    point = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(point)
        value = digamma(point)
    # Near its root, at 1.46, no relative precision is promised.
    np.testing.assert_allclose(
        value, scipy.special.digamma(x.astype("float64")), rtol=tolerance, atol=tolerance
    )
    trigamma = scipy.special.polygamma(1, x.astype("float64"))
    np.testing.assert_allclose(tape.gradient(value, point), trigamma, rtol=tolerance)
