"""The oracles agree with facts that do not come from them: closed forms, hand computation, symmetries."""

import math

import numpy as np
import pytest
from oracles import dynamic_routing as dynamic
from oracles import em_routing as em
from oracles import losses


@pytest.fixture
def rng():
    return np.random.default_rng(20180226)


def numeric_gradient(function, point, step=1e-6):
    gradient = np.zeros_like(point)
    for index in np.ndindex(point.shape):
        shift = np.zeros_like(point)
        shift[index] = step
        gradient[index] = (function(point + shift) - function(point - shift)) / (2 * step)
    return gradient


# Dynamic routing


def test_squash_maps_length_three_to_nine_tenths():
    np.testing.assert_allclose(dynamic.squash([0.0, 3.0]), [0.0, 0.9])


def test_squash_keeps_the_direction_and_stays_below_one(rng):
    s = rng.normal(size=(5, 4)) * 10
    v = dynamic.squash(s)
    length = np.linalg.norm(s, axis=-1)
    np.testing.assert_allclose(v / np.linalg.norm(v, axis=-1, keepdims=True), s / length[:, None])
    np.testing.assert_allclose(np.linalg.norm(v, axis=-1), length**2 / (1 + length**2))


def test_squash_of_zero_is_zero_with_zero_derivative():
    np.testing.assert_array_equal(dynamic.squash(np.zeros((2, 3))), np.zeros((2, 3)))
    gradient = numeric_gradient(lambda s: np.sum(dynamic.squash(s)), np.zeros(3))
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)


def test_derivative_of_squash_along_the_vector_is_that_of_its_length():
    # d/dn of n^2 / (1 + n^2) is 2 n / (1 + n^2)^2; here n = 2.
    gradient = numeric_gradient(lambda s: dynamic.squash(s)[0], np.array([2.0, 0.0]))
    np.testing.assert_allclose(gradient, [4 / 25, 0.0], atol=1e-8)


def test_two_children_that_agree_on_one_parent_give_the_closed_form():
    # Round 1: s = 1/2 + 1/2 = 1, v = 1/2, so that each child's logit is 1/2.
    # Round 2: c = e^.5 / (1 + e^.5), s = 2 c.
    votes = np.array([0.0, 1.0, 0.0, 1.0]).reshape(1, 2, 2, 1)
    routed = dynamic.dynamic_routing(votes, num_iterations=2)
    share = math.exp(0.5) / (1 + math.exp(0.5))
    np.testing.assert_allclose(routed["coefficients"][1], [[[1 - share, share]] * 2])
    np.testing.assert_allclose(routed["poses"].ravel(), [0.0, (2 * share) ** 2 / (1 + (2 * share) ** 2)])


def test_one_iteration_divides_each_child_equally_and_squashes(rng):
    votes, bias = rng.normal(size=(2, 5, 3, 4)), rng.normal(size=(3, 4))
    routed = dynamic.dynamic_routing(votes, num_iterations=1, bias=bias)
    np.testing.assert_allclose(routed["poses"], dynamic.squash(votes.sum(axis=1) / 3 + bias))
    uniform = dynamic.uniform_routing(votes, bias, scale="mean")
    np.testing.assert_allclose(routed["poses"], uniform["poses"])
    np.testing.assert_allclose(routed["coefficients"][0], uniform["coefficients"][0])


def test_no_routing_squashes_the_plain_sum(rng):
    votes = rng.normal(size=(2, 5, 3, 4))
    np.testing.assert_allclose(dynamic.uniform_routing(votes)["poses"], dynamic.squash(votes.sum(axis=1)))


def test_each_childs_dynamic_coefficients_sum_to_one_over_its_parents(rng):
    history = dynamic.dynamic_routing(rng.normal(size=(2, 5, 3, 4)), num_iterations=4)["coefficients"]
    assert len(history) == 4
    np.testing.assert_allclose(np.sum(history, axis=-1), 1.0)


def test_a_leaky_child_with_one_parent_keeps_half_of_itself_at_first():
    votes = np.array([2.0]).reshape(1, 1, 1, 1)
    routed = dynamic.dynamic_routing(votes, num_iterations=2, leaky=True)
    # Round 1: c = 1/2, s = 1, v = 1/2, so that the logit is 1 against the constant 0.
    np.testing.assert_allclose(np.ravel(routed["coefficients"]), [0.5, math.e / (1 + math.e)])


def test_dynamic_routing_moves_coefficients_towards_the_parent_on_which_children_agree(rng):
    votes = rng.normal(size=(1, 8, 2, 4))
    votes[:, :, 0] = [1.0, -1.0, 0.5, 0.0]
    history = dynamic.dynamic_routing(votes, num_iterations=3)["coefficients"]
    agreed = [coefficients[0, :, 0].mean() for coefficients in history]
    assert agreed[0] < agreed[1] < agreed[2]


def test_dynamic_routing_is_equivariant_to_permuting_children_and_parents_and_to_rotating_poses(rng):
    votes = rng.normal(size=(2, 5, 3, 4))
    children, parents = rng.permutation(5), rng.permutation(3)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    poses = dynamic.dynamic_routing(votes, 3)["poses"]
    moved = dynamic.dynamic_routing(votes[:, children][:, :, parents] @ rotation, 3)["poses"]
    np.testing.assert_allclose(moved, poses[:, parents] @ rotation)


# Losses


def test_margin_loss_by_hand():
    lengths, targets = [[0.5, 0.3, 0.05], [0.95, 0.1, 0.6]], [[1, 0, 0], [1, 0, 0]]
    # First image: 0.4^2 + 0.5 * 0.2^2; second: 0.5 * 0.5^2.
    total = (0.16 + 0.02) + 0.125
    np.testing.assert_allclose(losses.margin_loss(lengths, targets), total / 2)
    np.testing.assert_allclose(losses.margin_loss(lengths, targets, scaling="official"), 0.5 * total / 6)


def test_official_margin_loss_is_a_twentieth_of_the_papers_for_ten_classes(rng):
    lengths, targets = rng.uniform(size=(4, 10)), np.eye(10)[[3, 1, 4, 1]]
    ratio = losses.margin_loss(lengths, targets, "official") / losses.margin_loss(lengths, targets)
    np.testing.assert_allclose(ratio, 1 / 20)


def test_margin_loss_has_the_slope_of_its_parabolas():
    targets = np.array([[1.0, 0.0]])
    gradient = numeric_gradient(lambda x: losses.margin_loss(x, targets), np.array([[0.4, 0.7]]))
    np.testing.assert_allclose(gradient, [[-2 * 0.5, 0.6]], atol=1e-8)


def test_reconstruction_loss_sums_pixels_and_averages_images():
    images = np.zeros((2, 4, 4, 1))
    reconstructions = np.stack([np.full((4, 4, 1), 0.5), np.zeros((4, 4, 1))])
    np.testing.assert_allclose(losses.reconstruction_loss(images, reconstructions), 0.0005 * 16 * 0.25 / 2)


def test_spread_loss_by_hand():
    activations, labels = [[0.5, 0.4, 0.1]], [0]
    np.testing.assert_allclose(losses.spread_loss(activations, labels, margin=0.2), 0.1**2)
    np.testing.assert_allclose(losses.spread_loss(activations, labels, 0.2, scaling="official"), 0.1**2 / 3)


def test_spread_loss_with_margin_one_is_the_squared_hinge_loss(rng):
    activations, labels = rng.uniform(size=(4, 5)), [0, 3, 2, 4]
    gap = activations[range(4), labels][:, None] - activations
    hinge = np.maximum(0, 1 - gap) ** 2
    hinge[range(4), labels] = 0
    np.testing.assert_allclose(losses.spread_loss(activations, labels, 1.0), hinge.sum(axis=1).mean())


@pytest.mark.parametrize(("step", "margin"), [(0, 0.21421), (200_000, 0.595), (10_000_000, 0.98996)])
def test_official_margin_follows_its_sigmoid(step, margin):
    assert losses.official_margin(step) == pytest.approx(margin, abs=1e-5)


def test_linear_margin_rises_from_two_to_nine_tenths_and_stays():
    margins = [losses.linear_margin(step, 100) for step in (0, 50, 100, 150)]
    np.testing.assert_allclose(margins, [0.2, 0.55, 0.9, 0.9])


# EM routing


def grid_case(
    rng, child_grid=(5, 5), stride=1, types=2, parent_types=3, depth=2, images=1, spread=1.0, kernel=3
):
    """Random votes and child activations of a convolutional layer."""
    height, width = ((side - kernel) // stride + 1 for side in child_grid)
    votes = spread * rng.normal(size=(images, height, width, kernel, kernel, types, parent_types, depth))
    return votes, rng.uniform(0.2, 1.0, size=(images, *child_grid, types))


def mass_of_children(coefficients, child_grid, stride):
    """Sum of coefficients over everything that sees a child, [B, Hi, Wi, I, O], by adding strided slices."""
    images, height, width, kernel, _, types, parent_types = coefficients.shape
    mass = np.zeros((images, *child_grid, types, parent_types))
    for ky in range(kernel):
        for kx in range(kernel):
            rows = slice(ky, ky + stride * (height - 1) + 1, stride)
            columns = slice(kx, kx + stride * (width - 1) + 1, stride)
            mass[:, rows, columns] += coefficients[:, :, :, ky, kx]
    return mass


def test_inverse_temperature_takes_the_published_values():
    np.testing.assert_allclose([em.inverse_temperature(t) for t in range(3)], [0.0005, 0.000975, 0.00142625])


def test_one_parent_and_two_children_by_hand():
    # Masses 1 and 1/3 at votes 0 and 2: mean 1/2, variance (1/4 + 9/4 / 3) / (4/3) = 3/4.
    votes, activations = np.array([0.0, 2.0]).reshape(1, 2, 1, 1), np.array([[1.0, 1 / 3]])
    routed = em.em_routing_dense(votes, activations, beta_u=2.0, beta_a=-5.0, num_iterations=1)
    np.testing.assert_allclose(routed["poses"].item(), 0.5)
    np.testing.assert_allclose(routed["variances"].item(), 0.75)
    logit = 0.0005 * (-5.0 - (2.0 + math.log(math.sqrt(0.75))) * 4 / 3)
    np.testing.assert_allclose(routed["activation_logits"].item(), logit)
    np.testing.assert_allclose(routed["activations"].item(), 1 / (1 + math.exp(-logit)))


def test_one_parent_and_two_children_by_hand_as_in_the_authors_code():
    votes, activations = np.array([0.0, 2.0]).reshape(1, 2, 1, 1), np.array([[1.0, 1 / 3]])
    routed = em.em_routing_dense(
        votes, activations, 2.0, 1.0, num_iterations=2, variant="official", mass_floor=0.0
    )
    # Two damped means: 0.9 * 0.5, then 0.9 * 0.5 + 0.1 * 0.45; one parent, so that its coefficients stay one.
    mean = 0.495
    variance = 5e-4 + (mean**2 + (2 - mean) ** 2 / 3) / (4 / 3)
    np.testing.assert_allclose(routed["poses"].item(), mean)
    np.testing.assert_allclose(routed["variances"].item(), variance)
    gain = 4 / 3 * (-math.log(variance) - 2.0 * (math.log(2 * math.pi) + 1))
    np.testing.assert_allclose(routed["activation_logits"].item(), 0.000975 / 4 * (gain - 5000.0))


@pytest.mark.parametrize("child_grid", [(5, 5), (7, 6)])
@pytest.mark.parametrize("stride", [1, 2])
def test_every_childs_parents_are_the_positions_whose_window_covers_it(child_grid, stride):
    parent_grid = tuple((side - 3) // stride + 1 for side in child_grid)
    index = np.arange(np.prod(child_grid)).reshape(child_grid)
    parents = em.parents_of_children(child_grid, parent_grid, 3, stride)
    for (y, x), seen_by in parents.items():
        for (h, w), tap in seen_by:
            assert index[stride * h : stride * h + 3, stride * w : stride * w + 3][tap] == index[y, x]
    assert sum(map(len, parents.values())) == np.prod(parent_grid) * 9


@pytest.mark.parametrize(("child_grid", "stride"), [((5, 5), 1), ((5, 5), 2), ((6, 7), 2)])
def test_each_childs_coefficients_sum_to_one_over_its_parents(rng, child_grid, stride):
    votes, activations = grid_case(rng, child_grid, stride)
    history = em.em_routing(votes, activations, 1.0, 1.0, 3, stride)["coefficients"]
    covered = np.zeros(child_grid, dtype=bool)
    side_y, side_x = (stride * ((side - 3) // stride) + 3 for side in child_grid)
    covered[:side_y, :side_x] = True
    for coefficients in history:
        mass = mass_of_children(coefficients, child_grid, stride).sum(
            axis=-1
        )  # over parent types: [B, Hi, Wi, I]
        np.testing.assert_allclose(mass[:, covered], 1.0)
        np.testing.assert_array_equal(mass[:, ~covered], 0.0)


def test_each_child_starts_divided_equally_among_positions_and_types(rng):
    votes, activations = grid_case(rng, child_grid=(5, 5), stride=2, parent_types=3)
    first = em.em_routing(votes, activations, 1.0, 1.0, 1, stride=2)["coefficients"][0]
    np.testing.assert_allclose(first[0, 0, 0, 0, 0], 1 / 3)  # corner child: one position
    np.testing.assert_allclose(first[0, 0, 0, 0, 2], 1 / 6)  # on the border of two windows
    np.testing.assert_allclose(first[0, 1, 1, 0, 0], 1 / 12)  # the centre: four windows


@pytest.mark.parametrize("stride", [1, 2])
def test_e_step_equals_a_masked_softmax_over_all_parents_of_a_5x5_grid(rng, stride):
    side = (5 - 3) // stride + 1
    z = 20 * rng.normal(size=(1, side, side, 3, 3, 2, 3))
    coefficients = em.e_step_brute_force(z, em.parents_of_children((5, 5), (side, side), 3, stride))
    weights = np.exp(z)
    totals = mass_of_children(weights, (5, 5), stride).sum(axis=-1)
    for h, w, ky, kx in np.ndindex(side, side, 3, 3):
        expected = weights[0, h, w, ky, kx] / totals[0, stride * h + ky, stride * w + kx][:, None]
        np.testing.assert_allclose(coefficients[0, h, w, ky, kx], expected)


def test_e_step_survives_weights_beyond_the_range_of_exp():
    parents = em.parents_of_children((1, 1), (1, 1), 1, 1)
    z = np.array([-5000.0, -5000.0 + math.log(3)]).reshape(1, 1, 1, 1, 1, 1, 2)
    np.testing.assert_allclose(em.e_step_brute_force(z, parents).ravel(), [0.25, 0.75])


def test_coefficients_are_the_posterior_of_a_mixture_with_the_fitted_gaussians(rng):
    votes, activations = rng.normal(size=(1, 6, 3, 2)), rng.uniform(0.2, 1, size=(1, 6))
    fitted = em.em_routing_dense(votes, activations, 1.0, [-900.0, 0.0, 900.0], num_iterations=1)
    mean, variance, active = fitted["poses"], fitted["variances"], fitted["activations"]
    density = np.prod(
        np.exp(-((votes - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance), axis=-1
    )
    posterior = active * density / np.sum(active * density, axis=-1, keepdims=True)
    routed = em.em_routing_dense(votes, activations, 1.0, [-900.0, 0.0, 900.0], num_iterations=2)
    np.testing.assert_allclose(routed["coefficients"][1], posterior)


def test_procedure_1_gives_the_activation_of_equation_2_with_the_constant_moved_into_beta_u(rng):
    votes, activations, beta_u = rng.normal(size=(1, 6, 1, 4)), rng.uniform(0.2, 1, size=(1, 6)), 1.7
    constant = 0.5 + 0.5 * math.log(2 * math.pi)
    routed = em.em_routing_dense(votes, activations, beta_u / 4 + constant, 3.0, num_iterations=1)
    mean, variance = routed["poses"], routed["variances"]
    log_density = -((votes - mean) ** 2) / (2 * variance) - 0.5 * np.log(2 * np.pi * variance)
    cost = np.sum(activations[..., None, None] * -log_density)
    expected = 0.0005 * (3.0 - beta_u * activations.sum() - cost)
    np.testing.assert_allclose(routed["activation_logits"].item(), expected)


def test_log_density_is_that_of_independent_normal_variables():
    # The standard normal at 0, and the normal of standard deviation 2 one deviation from its mean.
    expected = math.log(0.3989422804 * 0.2419707245 / 2)
    mean, variance = np.array([0.0, 1.0]), np.array([1.0, 4.0])
    np.testing.assert_allclose(em.log_density(np.array([0.0, 3.0]), mean, variance), expected)


def test_the_m_step_maximises_the_weighted_likelihood(rng):
    votes, activations = rng.normal(size=(1, 6, 1, 2)), rng.uniform(0.2, 1, size=(1, 6))
    routed = em.em_routing_dense(votes, activations, 1.0, 1.0, num_iterations=1)

    def likelihood(parameters):
        return sum(activations[0, i] * em.log_density(votes[0, i, 0], *parameters) for i in range(6))

    optimum = np.stack([routed["poses"][0, 0], routed["variances"][0, 0]])
    np.testing.assert_allclose(numeric_gradient(likelihood, optimum), 0.0, atol=1e-7)


def free_energy(votes, activations, coefficients, routed, stride):
    """Expected energy minus entropy of the assignments, each child counting as much as it is active."""
    mean, variance = (
        routed["poses"][:, :, :, None, None, None],
        routed["variances"][:, :, :, None, None, None],
    )
    energy = np.sum((votes - mean) ** 2 / (2 * variance) + 0.5 * np.log(2 * np.pi * variance), axis=-1)
    mass = mass_of_children(coefficients * (energy + np.log(coefficients)), activations.shape[1:3], stride)
    return np.sum(activations * mass.sum(axis=-1))


@pytest.mark.parametrize("stride", [1, 2])
def test_with_all_parents_equally_active_em_never_raises_the_free_energy(rng, stride):
    votes, activations = grid_case(rng, child_grid=(5, 5), stride=stride, types=3)
    energies = []
    for num_iterations in range(1, 7):  # lambda = 0 leaves every activation at 1/2
        routed = em.em_routing(votes, activations, 1.0, 1.0, num_iterations, stride, final_lambda=0.0)
        energies.append(free_energy(votes, activations, routed["coefficients"][-1], routed, stride))
    assert np.all(np.diff(energies) < 0)


def test_em_finds_the_cluster_that_the_votes_were_drawn_from(rng):
    votes = rng.normal(size=(1, 40, 2, 3)) * 3
    votes[0, :25, 0] = [1.0, -2.0, 0.5] + 0.01 * rng.normal(size=(25, 3))
    routed = em.em_routing_dense(votes, np.ones((1, 40)), 1.0, 1.0, num_iterations=10)
    np.testing.assert_allclose(routed["poses"][0, 0], [1.0, -2.0, 0.5], atol=0.02)
    np.testing.assert_allclose(routed["coefficients"][-1][0, :25, 0], 1.0, atol=0.01)
    assert routed["activations"][0, 0] > routed["activations"][0, 1]


@pytest.mark.parametrize("variant", ["paper", "official"])
def test_em_is_equivariant_to_permuting_types(rng, variant):
    votes, activations = grid_case(rng, types=3, parent_types=3)
    children, parents = np.array([2, 0, 1]), np.array([1, 2, 0])
    beta_u, beta_a = rng.uniform(size=(2, 3))
    plain = em.em_routing(votes, activations, beta_u, beta_a, variant=variant)
    moved_votes = votes[..., children, :, :][..., parents, :]
    moved = em.em_routing(
        moved_votes, activations[..., children], beta_u[parents], beta_a[parents], variant=variant
    )
    np.testing.assert_allclose(moved["poses"], plain["poses"][..., parents, :], atol=1e-12)
    np.testing.assert_allclose(moved["activations"], plain["activations"][..., parents])


def test_translating_all_votes_translates_the_poses_and_nothing_else(rng):
    votes, activations = grid_case(rng, stride=2)
    plain = em.em_routing(votes, activations, 1.0, 1.0, stride=2)
    moved = em.em_routing(votes + np.array([3.0, -1.0]), activations, 1.0, 1.0, stride=2)
    np.testing.assert_allclose(moved["poses"], plain["poses"] + [3.0, -1.0])
    np.testing.assert_allclose(moved["activations"], plain["activations"])


def test_a_silent_child_has_no_influence(rng):
    votes, activations = rng.normal(size=(1, 6, 3, 2)), rng.uniform(0.2, 1, size=(1, 6))
    activations[0, 5] = 0.0
    with_it = em.em_routing_dense(votes, activations, 1.0, 1.0)
    without = em.em_routing_dense(votes[:, :5], activations[:, :5], 1.0, 1.0)
    np.testing.assert_allclose(with_it["poses"], without["poses"])
    np.testing.assert_allclose(with_it["activations"], without["activations"])


def test_a_window_as_large_as_the_grid_is_a_dense_layer(rng):
    votes, activations = grid_case(rng, child_grid=(3, 3))
    grid = em.em_routing(votes, activations, 1.0, 1.0)
    dense = em.em_routing_dense(votes.reshape(1, 18, 3, 2), activations.reshape(1, 18), 1.0, 1.0)
    np.testing.assert_allclose(grid["poses"][:, 0, 0], dense["poses"])
    np.testing.assert_allclose(grid["coefficients"][-1].reshape(1, 18, 3), dense["coefficients"][-1])


def test_images_do_not_depend_on_each_other(rng):
    votes, activations = grid_case(rng, images=2)
    both = em.em_routing(votes, activations, 1.0, 1.0, variant="official")
    second = em.em_routing(votes[1:], activations[1:], 1.0, 1.0, variant="official")
    np.testing.assert_allclose(both["poses"][1:], second["poses"])
    np.testing.assert_allclose(both["activations"][1:], second["activations"])


def test_a_parent_without_data_is_an_error_unless_the_mass_has_a_floor(rng):
    votes = rng.normal(size=(1, 4, 2, 3))
    with pytest.raises(ValueError, match="no data"):
        em.em_routing_dense(votes, np.zeros((1, 4)), 1.0, 1.0)
    routed = em.em_routing_dense(votes, np.zeros((1, 4)), 1.0, 1.0, mass_floor=1e-7, variance_floor=5e-4)
    np.testing.assert_array_equal(routed["poses"], 0.0)
    np.testing.assert_allclose(routed["activations"], 0.5, atol=1e-3)


def test_without_data_the_authors_code_starts_every_parent_below_one_half(rng):
    votes, activations = grid_case(rng)
    grid = em.em_routing(votes, 0 * activations, 0.5, 0.5, variant="official")
    np.testing.assert_allclose(grid["activation_logits"], -3.6, atol=0.05)
    dense = em.em_routing_dense(votes.reshape(1, -1, 3, 2), np.zeros((1, 162)), 2.0, 1.0, variant="official")
    np.testing.assert_allclose(dense["activation_logits"], -1.8, atol=0.05)


@pytest.mark.parametrize("normalise", ["positions", "positions_as_coded"])
def test_as_in_the_authors_code_each_child_gives_one_to_each_parent_type_if_the_stride_is_one(rng, normalise):
    votes, activations = grid_case(rng, stride=1, spread=0.3)
    routed = em.em_routing(votes, activations, 0.5, 0.5, 3, variant="official", normalise=normalise)
    assert np.all(routed["coefficients"][0] == 1 / 3)
    for coefficients in routed["coefficients"][1:]:
        np.testing.assert_allclose(mass_of_children(coefficients, (5, 5), 1), 1.0, atol=1e-3)


def test_the_authors_code_mixes_children_if_the_stride_is_two(rng):
    # Of 7 x 7 children seen through 3 x 3 windows, the code makes (3 + 3 - 1)^2 = 25 groups of mass one.
    votes, activations = grid_case(rng, child_grid=(7, 7), stride=2, spread=0.3)
    coded = em.em_routing(votes, activations, 0.5, 0.5, 2, 2, "official")["coefficients"][1]
    mass = mass_of_children(coded, (7, 7), 2)
    np.testing.assert_allclose(mass.mean(axis=(1, 2)), 25 / 49, rtol=1e-3)
    assert np.ptp(mass) > 0.5
    mended = em.em_routing(votes, activations, 0.5, 0.5, 2, 2, "official", normalise="positions")[
        "coefficients"
    ][1]
    np.testing.assert_allclose(mass_of_children(mended, (7, 7), 2), 1.0, atol=1e-3)


def test_a_wrong_grid_or_an_unknown_option_is_an_error(rng):
    votes, activations = grid_case(rng)
    with pytest.raises(ValueError, match=r"Received: .*stride 2"):
        em.em_routing(votes, activations, 1.0, 1.0, stride=2)
    with pytest.raises(ValueError, match="Received: 'papre'"):
        em.em_routing(votes, activations, 1.0, 1.0, variant="papre")
    with pytest.raises(ValueError, match="Received: 'types'"):
        em.em_routing(votes, activations, 1.0, 1.0, normalise="types")
