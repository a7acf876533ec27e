"""Oracle of EM routing, in NumPy float64.

Source: Hinton, Sabour, Frosst, "Matrix Capsules with EM Routing", 2018, Procedure 1 (variant "paper"), and
the authors' released code (variant "official"), which damps the mean, floors the variance, writes the
activation differently and normalises the coefficients of a convolutional layer over parent positions only.
That a child's coefficients sum to one over its parents at all positions: Procedure 1 and Gritzman, "Avoiding
Implementation Pitfalls of Matrix Capsules with EM Routing", 2019.

A convolutional layer has a kernel of K by K and a stride, without padding. Votes are
[B, Ho, Wo, K, K, I, O, D]: the vote of the child of type i seen through tap (ky, kx) by the parent of type o
at position (h, w). Who is whose parent is kept as an explicit mapping, and every sum is a loop over it.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Variant:
    """What distinguishes the paper's procedure from the authors' code."""

    normalise: str
    damping: float  # share of the previous mean that the new mean keeps
    variance_floor: float  # added to every variance
    mass_floor: float  # added to every parent's amount of data


VARIANTS = {
    "paper": Variant(normalise="parents", damping=0.0, variance_floor=0.0, mass_floor=0.0),
    "official": Variant(normalise="positions_as_coded", damping=0.1, variance_floor=5e-4, mass_floor=1e-7),
}
NORMALISATIONS = ("parents", "positions", "positions_as_coded")


def inverse_temperature(iteration, final_lambda=0.01):
    """lambda_t = final_lambda * (1 - 0.95^(t + 1)), t counted from zero (authors' code)."""
    return final_lambda * (1.0 - 0.95 ** (iteration + 1))


def parents_of_children(child_grid, parent_grid, kernel, stride):
    """Map each child position (y, x) to its parents: a list, maybe empty, of ((h, w), tap (ky, kx))."""
    parents = {}
    for y, x in np.ndindex(*child_grid):
        parents[y, x] = []
        for h, w in np.ndindex(*parent_grid):
            ky, kx = y - stride * h, x - stride * w
            if 0 <= ky < kernel and 0 <= kx < kernel:
                parents[y, x].append(((h, w), (ky, kx)))
    return parents


def e_step_brute_force(log_weights, parents):
    """Normalise each child's weights over all its parents, positions and types (Procedure 1, E-step 3).

    R_ij = exp(z_ij) / sum over all parents k of child i of exp(z_ik)

    where:
        z = log_weights[B, Ho, Wo, K, K, I, O] = ln(a_j p_ij)
        parents = the mapping of `parents_of_children`

    Returns coefficients of the shape of z. A child without parents occurs nowhere in them.
    """
    log_weights = np.asarray(log_weights, dtype=np.float64)
    coefficients = np.full_like(log_weights, np.nan)  # a place that no child claims would stay visible
    num_images, num_types = log_weights.shape[0], log_weights.shape[5]
    for b in range(num_images):
        for i in range(num_types):
            for seen_by in parents.values():
                if not seen_by:
                    continue
                z = np.array(
                    [log_weights[(b, *position, *tap, i)] for position, tap in seen_by]
                )  # [parents, O]
                weights = np.exp(z - np.max(z))
                shares = weights / np.sum(weights)
                for (position, tap), share in zip(seen_by, shares, strict=True):
                    coefficients[(b, *position, *tap, i)] = share
    return coefficients


def e_step_over_positions(log_weights, groups, floor=1e-7):
    """Normalise over the positions of a group, separately for each pair of types, as the authors' code does.

    R = exp(z - max) / (floor + sum over the group of exp(z - max))

    where:
        z = log_weights[B, Ho, Wo, K, K, I, O]
        max = the maximum of z over all positions and taps, one for each [B, I, O]
        groups = a mapping as of `parents_of_children`; only its values matter
    """
    log_weights = np.asarray(log_weights, dtype=np.float64)
    coefficients = np.full_like(log_weights, np.nan)
    num_images, num_types, num_parents = log_weights.shape[0], *log_weights.shape[5:]
    for b in range(num_images):
        for i in range(num_types):
            for o in range(num_parents):
                weights = np.exp(
                    log_weights[b, ..., i, o] - np.max(log_weights[b, ..., i, o])
                )  # [Ho, Wo, K, K]
                for group in groups.values():
                    total = floor + sum(weights[position + tap] for position, tap in group)
                    for position, tap in group:
                        coefficients[(b, *position, *tap, i, o)] = weights[position + tap] / total
    return coefficients


def groups_as_coded(parent_grid, kernel):
    """The groups that the authors' code normalises over: entries with equal (h + ky, w + kx).

    They are the parents of one child if the stride is one. For a larger stride they mix different children.
    """
    groups = defaultdict(list)
    for h, w, ky, kx in np.ndindex(*parent_grid, kernel, kernel):
        groups[h + ky, w + kx].append(((h, w), (ky, kx)))
    return dict(groups)


def log_density(vote, mean, variance):
    """Log density of one vote[D] under an axis-aligned Gaussian (the equation before equation 1)."""
    return -0.5 * np.sum(np.log(2.0 * np.pi) + np.log(variance) + (vote - mean) ** 2 / variance)


def log_logistic(x):
    """ln(1 / (1 + exp(-x))) without overflow."""
    return -np.logaddexp(0.0, -x)


def paper_logit(mass, variance, beta_u, beta_a, temperature):
    """lambda * (beta_a - sum over h of (beta_u + ln sigma_h) * mass) (Procedure 1, M-step 5 and 6)."""
    cost = np.sum((beta_u + 0.5 * np.log(variance)) * mass)
    return temperature * (beta_a - cost)


def official_logit(mass, variance, beta_u, beta_a, temperature):
    """lambda * (mass * (-sum of ln sigma_h^2 - beta_u * D * (ln 2 pi + 1)) - 5000 * beta_a) (code)."""
    gain = -np.sum(np.log(variance)) - beta_u * len(variance) * (np.log(2.0 * np.pi) + 1.0)
    return temperature * (mass * gain - 5000.0 * beta_a)


def fit_gaussian(votes, weights, previous_mean, settings):
    """Weighted mean, variance and mass of a parent's votes[n, D], weights[n] (Procedure 1, M-step 3, 4)."""
    mass = np.sum(weights) + settings.mass_floor
    if mass == 0.0:
        raise ValueError(
            "a parent received no data, where Procedure 1 is undefined; set mass_floor. Received: 0"
        )
    mean = sum(weight * vote for weight, vote in zip(weights, votes, strict=True)) / mass
    mean = (1.0 - settings.damping) * mean + settings.damping * previous_mean
    variance = sum(weight * (vote - mean) ** 2 for weight, vote in zip(weights, votes, strict=True)) / mass
    return mean, variance + settings.variance_floor, mass


def em_routing(
    votes,
    activations,
    beta_u,
    beta_a,
    num_iterations=3,
    stride=1,
    variant="paper",
    final_lambda=0.01,
    normalise=None,
    variance_floor=None,
    mass_floor=None,
):
    """Route the votes of a convolutional capsule layer by EM (Procedure 1, or the authors' code).

    R is uniform; then `num_iterations` times an M-step and, except after the last, an E-step.

    where:
        votes[B, Ho, Wo, K, K, I, O, D]; activations[B, Hi, Wi, I] of the children, in [0, 1]
        beta_u, beta_a = scalars or [O], one for each parent type
        normalise = "parents" (all parents of a child: paper), "positions" (parent positions of a child, one
            pair of types at a time), "positions_as_coded" (the same with the groups of the authors' code,
            which equal a child's parents only if the stride is one); None takes the variant's
        variance_floor, mass_floor = added to each variance and each mass; None takes the variant's

    Returns a dict: `poses` [B, Ho, Wo, O, D], `variances` likewise, `activations` and `activation_logits`
    [B, Ho, Wo, O], and `coefficients`, a list with, for each iteration, the R[B, Ho, Wo, K, K, I, O] that its
    M-step used, before the multiplication with the children's activations.
    """
    votes = np.asarray(votes, dtype=np.float64)
    activations = np.asarray(activations, dtype=np.float64)
    settings = _settings(variant, normalise, variance_floor, mass_floor)
    num_images, height, width, kernel, _, num_types, num_parents, depth = votes.shape
    _check_geometry(votes, activations, stride)
    beta_u = np.broadcast_to(np.asarray(beta_u, dtype=np.float64), (num_parents,))
    beta_a = np.broadcast_to(np.asarray(beta_a, dtype=np.float64), (num_parents,))
    activation_logit = {"paper": paper_logit, "official": official_logit}[variant]

    parents = parents_of_children(activations.shape[1:3], (height, width), kernel, stride)
    # The inverse mapping: what each parent position sees, as (child position, tap).
    children = defaultdict(list)
    for child, seen_by in parents.items():
        for position, tap in seen_by:
            children[position].append((child, tap))

    means = np.zeros((num_images, height, width, num_parents, depth))
    variances = np.zeros_like(means)
    logits = np.zeros((num_images, height, width, num_parents))
    coefficients = _uniform(votes.shape[:-1], parents, settings)
    history = []
    for iteration in range(num_iterations):
        if iteration > 0:
            log_weights = _log_weights(votes, means, variances, logits, children)
            coefficients = _normalised(log_weights, parents, settings.normalise)
        history.append(coefficients)
        temperature = inverse_temperature(iteration, final_lambda)
        for b, h, w, o in np.ndindex(num_images, height, width, num_parents):
            seen, weights = [], []
            for child, tap in children[h, w]:
                for i in range(num_types):
                    seen.append(votes[(b, h, w, *tap, i, o)])
                    weights.append(coefficients[(b, h, w, *tap, i, o)] * activations[(b, *child, i)])
            mean, variance, mass = fit_gaussian(seen, weights, means[b, h, w, o], settings)
            means[b, h, w, o], variances[b, h, w, o] = mean, variance
            logits[b, h, w, o] = activation_logit(mass, variance, beta_u[o], beta_a[o], temperature)
    return {
        "poses": means,
        "variances": variances,
        "activations": np.exp(log_logistic(logits)),
        "activation_logits": logits,
        "coefficients": history,
    }


def em_routing_dense(
    votes,
    activations,
    beta_u,
    beta_a,
    num_iterations=3,
    variant="paper",
    final_lambda=None,
    variance_floor=None,
    mass_floor=None,
):
    """Route votes[B, I, O, D] of children[B, I] to parents that all see all children, as class capsules do.

    The same procedure on a grid of one position. Both variants normalise over all parents. The authors' code
    differs from its convolutional layers in two numbers: lambda divided by four and a mass floor of 1e-5.

    Returns the dict of `em_routing` without the grid: `poses` [B, O, D], `coefficients` [B, I, O], and so on.
    """
    if final_lambda is None:
        final_lambda = 0.01 / 4 if variant == "official" else 0.01
    if mass_floor is None and variant == "official":
        mass_floor = 1e-5
    routed = em_routing(
        np.asarray(votes)[:, None, None, None, None],
        np.asarray(activations)[:, None, None],
        beta_u,
        beta_a,
        num_iterations,
        variant=variant,
        final_lambda=final_lambda,
        normalise="parents",
        variance_floor=variance_floor,
        mass_floor=mass_floor,
    )
    history = [coefficients[:, 0, 0, 0, 0] for coefficients in routed.pop("coefficients")]
    return {**{name: value[:, 0, 0] for name, value in routed.items()}, "coefficients": history}


def _settings(variant, normalise, variance_floor, mass_floor):
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {sorted(VARIANTS)}. Received: {variant!r}")
    if normalise is not None and normalise not in NORMALISATIONS:
        raise ValueError(f"normalise must be one of {NORMALISATIONS}. Received: {normalise!r}")
    default = VARIANTS[variant]
    return Variant(
        normalise=default.normalise if normalise is None else normalise,
        damping=default.damping,
        variance_floor=default.variance_floor if variance_floor is None else variance_floor,
        mass_floor=default.mass_floor if mass_floor is None else mass_floor,
    )


def _check_geometry(votes, activations, stride):
    num_images, height, width, kernel, kernel_x, num_types = votes.shape[:6]
    child_height, child_width = activations.shape[1:3]
    grid = ((child_height - kernel) // stride + 1, (child_width - kernel) // stride + 1)
    expected = (num_images, *grid, kernel, kernel, activations.shape[3])
    if (num_images, height, width, kernel, kernel_x, num_types) != expected or num_images != len(activations):
        raise ValueError(
            "votes must be [B, Ho, Wo, K, K, I, O, D] and activations [B, Hi, Wi, I], "
            "Ho = (Hi - K) // stride + 1. "
            f"Received: {votes.shape}, {activations.shape}, stride {stride}"
        )


def _uniform(shape, parents, settings):
    """R = 1 / (parents of the child), or 1 / (parent types) where positions do not compete for a child."""
    if settings.normalise == "parents":
        return e_step_brute_force(np.zeros(shape), parents)
    return np.full(shape, 1.0 / shape[-1])


def _log_weights(votes, means, variances, logits, children):
    """ln(a_j p_ij) for every child and parent (Procedure 1, E-step 2 and the numerator of 3)."""
    log_weights = np.zeros(votes.shape[:-1])
    num_images, height, width, _, _, num_types, num_parents, _ = votes.shape
    for b, h, w, o in np.ndindex(num_images, height, width, num_parents):
        log_activation = log_logistic(logits[b, h, w, o])
        for _, tap in children[h, w]:
            for i in range(num_types):
                density = log_density(votes[(b, h, w, *tap, i, o)], means[b, h, w, o], variances[b, h, w, o])
                log_weights[(b, h, w, *tap, i, o)] = log_activation + density
    return log_weights


def _normalised(log_weights, parents, normalise):
    if normalise == "parents":
        return e_step_brute_force(log_weights, parents)
    if normalise == "positions":
        return e_step_over_positions(log_weights, parents)
    return e_step_over_positions(log_weights, groups_as_coded(log_weights.shape[1:3], log_weights.shape[3]))
