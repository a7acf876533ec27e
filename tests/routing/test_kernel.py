"""Similarity-learning routing, beyond what every routing obeys (`conformance/test_routing.py`)."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from oracles import kernel_routing as oracle
from scipy.optimize import minimize
from support import arrays

from capszoo.routing import KernelRouting

CHILDREN, PARENTS, DEPTH = 6, 3, 4
both_kernels = pytest.mark.parametrize("kernel", ["gaussian", "spectral"])


def problem(*leading, seed=0):
    """Votes `[..., I, O, D]` and activations `[..., I]`, in float64."""
    rng = np.random.default_rng(seed)
    votes = rng.normal(size=(*leading, CHILDREN, PARENTS, DEPTH))
    return votes, rng.uniform(0.05, 1, size=(*leading, CHILDREN))


def made(alpha=0.7, beta=0.4, **options):
    """Kernel routing in float64 with known alpha, beta and theta1."""
    layer = KernelRouting(**{"dtype": "float64", **options})
    layer.build((None, CHILDREN, PARENTS, DEPTH))
    layer.log_alpha.assign(np.full(PARENTS, np.log(alpha)))
    layer.log_beta.assign(np.full(PARENTS, np.log(beta)))
    layer.theta1.assign([0.5, 2.0, -1.0])
    return layer


def similarity(layer):
    """The kernel of `layer` as a function of a pose and a vote."""
    mixing = np.asarray(layer.mixing)
    if layer.kernel == "gaussian":
        return lambda pose, vote: oracle.gaussian_mixture(pose, vote, mixing, np.exp(layer.log_scales))
    bandwidths, frequencies = np.exp(layer.log_bandwidths), np.asarray(layer.frequencies)
    return lambda pose, vote: oracle.spectral_mixture(pose, vote, mixing, bandwidths, frequencies)


def first_coefficients(layer, votes, activations):
    """For each parent: similarities of the votes to their mean, and the coefficients that they lead to."""
    *_, history = layer(votes[None], activations[None], num_iterations=1, return_history=True)
    for j in range(PARENTS):
        mean = votes[:, j].mean(axis=0)
        similarities = np.array([similarity(layer)(mean, vote) for vote in votes[:, j]])
        yield similarities, np.asarray(history)[0, 0, :, j]


# The objective


@both_kernels
def test_each_parents_coefficients_sum_to_one_over_its_children(kernel):
    *_, history = made(kernel=kernel)(*problem(2), return_history=True)
    np.testing.assert_allclose(np.sum(history, axis=-2), 1, rtol=1e-12)


@both_kernels
@pytest.mark.parametrize(("alpha", "beta"), [(0.7, 0.4), (0.05, 0.3), (0.3, 0.05)])
def test_no_other_coefficients_make_the_objective_smaller(alpha, beta, kernel):
    votes, activations = problem()
    for similarities, coefficients in first_coefficients(
        made(alpha, beta, kernel=kernel), votes, activations
    ):
        cost = functools.partial(
            oracle.objective, similarities=similarities, activations=activations, alpha=alpha, beta=beta
        )
        found = minimize(
            cost,
            np.full(CHILDREN, 1 / CHILDREN),
            method="SLSQP",
            bounds=[(1e-12, 1)] * CHILDREN,
            constraints={"type": "eq", "fun": lambda c: c.sum() - 1},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert found.success
        np.testing.assert_allclose(coefficients, found.x, atol=2e-5)
        assert cost(coefficients) <= found.fun + 1e-9


@pytest.mark.parametrize(("alpha", "beta"), [(0.7, 0.4), (0.05, 0.3)])
def test_at_its_minimum_the_objective_has_the_value_of_the_identity(alpha, beta):
    votes, activations = problem()
    for similarities, coefficients in first_coefficients(made(alpha, beta), votes, activations):
        expected = oracle.least_objective(similarities, activations, alpha, beta)
        value = oracle.objective(coefficients, similarities, activations, alpha, beta)
        np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_without_penalties_the_most_similar_child_decides_alone():
    votes, activations = problem()
    for similarities, coefficients in first_coefficients(made(1e-5, 1e-7), votes, activations):
        np.testing.assert_allclose(coefficients, np.eye(CHILDREN)[similarities.argmax()], atol=1e-6)


def test_a_large_alpha_makes_all_children_equal_and_a_large_beta_lets_activations_decide():
    votes, activations = problem()
    for _, coefficients in first_coefficients(made(1e7, 1), votes, activations):
        np.testing.assert_allclose(coefficients, 1 / CHILDREN, rtol=1e-5)
    for _, coefficients in first_coefficients(made(1, 1e7), votes, activations):
        np.testing.assert_allclose(coefficients, activations / activations.sum(), rtol=1e-5)


def test_an_outlier_has_no_coefficient_where_the_others_agree():
    votes = np.full((1, CHILDREN, PARENTS, DEPTH), 0.5)
    votes[:, 2] = -3.0
    poses, _, history = made(0.05, 0.05)(votes, np.ones((1, CHILDREN)), return_history=True)
    assert np.max(np.asarray(history)[-1, 0, 2]) < 1e-3
    np.testing.assert_allclose(poses, 0.5, atol=0.01)


# Kernels and activations


@pytest.mark.parametrize("distance", [100, 1000, 3000])
def test_beside_a_vote_far_away_no_agreement_is_more_than_full(distance):
    """Squared distances are differences of squares, of which rounding could make negative ones."""
    rng = np.random.default_rng(0)
    votes = 0.01 * rng.normal(size=(1, 18, PARENTS, 16)).astype("float32")
    votes[:, 0] += distance
    present = np.ones((1, 18), "float32")
    present[:, 0] = 0
    layer = KernelRouting(beta=20.0)
    layer.build((None, 18, PARENTS, 16))
    _, activations = layer(votes, present)
    assert np.max(activations) <= 1 / (1 + np.exp(-(4 - 2)))


def test_agreement_has_similarity_one_and_in_the_spectral_kernel_one_per_dimension():
    votes = np.ones((1, CHILDREN, PARENTS, DEPTH))
    for kernel, whole in (("gaussian", 1.0), ("spectral", DEPTH)):
        layer = made(kernel=kernel)
        layer.theta2.assign(np.zeros(PARENTS))
        _, parents = layer(votes, np.ones((1, CHILDREN)))
        np.testing.assert_allclose(parents[0], 1 / (1 + np.exp(-whole * np.asarray(layer.theta1))), rtol=1e-6)


def test_the_initial_gaussians_are_all_different():
    layer = KernelRouting(10)
    layer.build((None, CHILDREN, PARENTS, DEPTH))
    np.testing.assert_allclose(np.exp(layer.log_scales)[[0, -1]], [1 / 32, 1], rtol=1e-5)
    assert np.all(np.diff(layer.log_scales) > 0.1)


def test_a_single_gaussian_begins_between_the_scales():
    layer = KernelRouting(1)
    layer.build((None, CHILDREN, PARENTS, DEPTH))
    np.testing.assert_allclose(np.exp(layer.log_scales), [(1 / 32) ** 0.5], rtol=1e-5)


@pytest.mark.parametrize("kernel", ["gaussian", "spectral"])
def test_a_fresh_parent_is_active_with_agreement_and_inactive_without(kernel):
    layer = KernelRouting(kernel=kernel)
    layer.build((None, CHILDREN, PARENTS, DEPTH))
    votes, present = 3 * problem(1)[0], np.ones((1, CHILDREN))
    assert np.min(layer(np.ones_like(votes), present)[1]) > 0.85
    assert np.max(layer(votes, present, num_iterations=1)[1]) < 0.5


def test_parameters_are_five_per_parent_and_two_per_gaussian():
    layer = KernelRouting(10)
    layer.build((None, 256, 5, 16))
    assert layer.count_params() == 5 * 5 + 2 * 10


# Positions


@both_kernels
def test_on_a_grid_every_position_is_routed_by_itself(kernel):
    layer, (votes, activations) = made(kernel=kernel), problem(2, 3, 2)
    poses, parents, history = arrays(layer(votes, activations, return_history=True))
    for place in np.ndindex(3, 2):
        here = (slice(None), *place)
        alone = arrays(layer(votes[here], activations[here], return_history=True))
        for array, other in zip((poses[here], parents[here], history[:, *here]), alone, strict=True):
            np.testing.assert_allclose(array, other, rtol=1e-9)


def test_votes_with_positions_last_are_routed_the_same():
    layer, (votes, activations) = made(), problem(2, 3, 2)
    expected = arrays(layer(votes, activations, return_history=True))
    poses, parents, history = layer(
        np.moveaxis(votes, (-3, -2, -1), (0, 1, 2)),
        np.moveaxis(activations, -1, 0),
        return_history=True,
        positions_last=True,
    )
    np.testing.assert_array_equal(poses, np.moveaxis(expected[0], (-2, -1), (0, 1)))
    np.testing.assert_array_equal(parents, np.moveaxis(expected[1], -1, 0))
    np.testing.assert_array_equal(history, np.moveaxis(expected[2], (-2, -1), (1, 2)))


# Bad places

HARD = {
    "zero poses and activations": lambda votes, activations: (0 * votes, 0 * activations),
    "one active child": lambda votes, activations: (votes, activations * (np.arange(CHILDREN) == 2)),
    "equal votes": lambda votes, activations: (0 * votes + 0.3, activations),
    "huge votes": lambda votes, activations: (1e4 * votes, activations),
    "tiny activations": lambda votes, activations: (votes, 1e-12 * activations),
}


@both_kernels
def test_in_hard_places_values_and_gradients_are_finite(kernel):
    layer = made(kernel=kernel, dtype="float32")
    for name, change in HARD.items():
        inputs = [tf.constant(array, "float32") for array in change(*problem(2))]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(*inputs)
        for array in arrays([outputs, tape.gradient(outputs, [*inputs, *layer.trainable_weights])]):
            assert np.all(np.isfinite(array)), name


# Options and errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "cosine"}, "kernel must be 'gaussian' or 'spectral'. Received: 'cosine'"),
        ({"components": 0}, r"components must be at least 1\. Received: 0"),
    ],
)
def test_a_wrong_option_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        KernelRouting(**options)


def test_votes_without_activations_and_of_low_rank_are_refused():
    with pytest.raises(ValueError, match=r"KernelRouting needs the children's activations\. Received: None"):
        made()(problem(1)[0])
    with pytest.raises(ValueError, match=r"votes must be \[B, ..., I, O, D\]\. Received shape: \(6, 3, 4\)"):
        KernelRouting().build((CHILDREN, PARENTS, DEPTH))
