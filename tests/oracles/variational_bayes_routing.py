"""Oracle of variational-Bayes routing, in NumPy float64.

Source: De Sousa Ribeiro, Leontidis, Kollias, "Capsule routing via variational Bayes", AAAI 2020: the votes of a parent
are Gaussian with an unknown mean and precision, the parents are the components of a mixture with unknown proportions,
and mean-field updates alternate between the posterior over these and the coefficients. Precisions are diagonal, and
the priors are those of the authors' code: alpha_0 = 1, m_0 = 0, kappa_0 = 1, Psi_0 = I, nu_0 = D + 1.

A convolutional layer is as in `em_routing`: votes [B, Ho, Wo, K, K, I, O, D] of the child of type i that the parent of
type o at position (h, w) sees through tap (ky, kx), and an explicit mapping of who is whose parent.

Written for obvious correctness: one loop per index of the paper, no epsilon.
"""

from collections import defaultdict

import numpy as np
from scipy.special import digamma

from oracles.em_routing import e_step_brute_force, parents_of_children

ALPHA, KAPPA, PSI = 1.0, 1.0, 1.0


def posterior(votes, shares):
    """The parameters of one parent's posterior, of its votes[n, D] and R'[n] = R_ij a_i.

    N = sum R',  alpha = alpha_0 + N,  kappa = kappa_0 + N,  nu = nu_0 + N
    mu = sum R' V / N,  m = (N mu + kappa_0 m_0) / kappa
    1 / Psi = 1 / Psi_0 + sum R' (V - mu)^2 + (kappa_0 N / kappa) (mu - m_0)^2
    """
    depth = len(votes[0])
    amount = sum(shares)
    if amount == 0.0:
        raise ValueError("a parent received no data: mu is undefined. Received: 0")
    kappa = KAPPA + amount
    mu = sum(share * vote for share, vote in zip(shares, votes, strict=True)) / amount
    scatter = sum(share * (vote - mu) ** 2 for share, vote in zip(shares, votes, strict=True))
    return {
        "alpha": ALPHA + amount,
        "kappa": kappa,
        "nu": depth + 1 + amount,
        "m": amount * mu / kappa,
        "inverse_psi": 1 / PSI + scatter + (KAPPA * amount / kappa) * mu**2,
    }


def expected_log_determinant(parent):
    """E ln|Lambda| = sum over h = 0 .. D - 1 of psi((nu - h) / 2) + D ln 2 + ln|Psi|."""
    depth = len(parent["m"])
    total = depth * np.log(2.0)
    for h in range(depth):
        total += digamma((parent["nu"] - h) / 2) - np.log(parent["inverse_psi"][h])
    return total


def expected_log_proportion(parent, siblings):
    """E ln pi = psi(alpha) - psi(sum of alpha over the parents of all types at the same position)."""
    return digamma(parent["alpha"]) - digamma(sum(sibling["alpha"] for sibling in siblings))


def expected_log_density(vote, parent):
    """ln p_ij = E ln|Lambda| / 2 - D ln(2 pi) / 2 - (D / kappa + nu sum_h (V_h - m_h)^2 Psi_h) / 2."""
    depth = len(vote)
    distance = sum((vote[h] - parent["m"][h]) ** 2 / parent["inverse_psi"][h] for h in range(depth))
    quadratic = depth / parent["kappa"] + parent["nu"] * distance
    return 0.5 * expected_log_determinant(parent) - 0.5 * depth * np.log(2 * np.pi) - 0.5 * quadratic


def activation_logit(parent, siblings, beta_u, beta_a):
    """beta_a - (exp(E ln pi) H + beta_u),  H = D ln(2 pi e) / 2 - E ln|Lambda| / 2."""
    depth = len(parent["m"])
    entropy = 0.5 * depth * np.log(2 * np.pi * np.e) - 0.5 * expected_log_determinant(parent)
    return beta_a - (np.exp(expected_log_proportion(parent, siblings)) * entropy + beta_u)


def variational_bayes_routing(votes, activations, beta_u, beta_a, num_iterations=3, stride=1):
    """Route votes[B, Ho, Wo, K, K, I, O, D] and activations[B, Hi, Wi, I] of the children, in [0, 1].

    R = 1 / O; then `num_iterations` times the posterior of all parents and, except after the last, the coefficients

    R_ij = exp(E ln pi_j + ln p_ij) / sum over all parents k of child i of exp(E ln pi_k + ln p_ik)

    where:
        beta_u, beta_a = [O], one for each parent type

    Returns a dict: `poses` [B, Ho, Wo, O, D], `activation_logits` and `activations` [B, Ho, Wo, O], and
    `coefficients`, a list with the R[B, Ho, Wo, K, K, I, O] of each iteration.
    """
    votes, activations = np.asarray(votes, dtype=np.float64), np.asarray(activations, dtype=np.float64)
    num_images, height, width, kernel, _, num_types, num_parents, depth = votes.shape
    parents_of = parents_of_children(activations.shape[1:3], (height, width), kernel, stride)
    children_of = defaultdict(list)
    for child, seen_by in parents_of.items():
        for position, tap in seen_by:
            children_of[position].append((child, tap))

    coefficients, history, parents = np.full(votes.shape[:-1], 1.0 / num_parents), [], {}
    for iteration in range(num_iterations):
        if iteration > 0:
            coefficients = e_step_brute_force(_log_weights(votes, parents, children_of), parents_of)
        history.append(coefficients)
        for b, h, w in np.ndindex(num_images, height, width):
            parents[b, h, w] = []
            for o in range(num_parents):
                seen, shares = [], []
                for child, tap in children_of[h, w]:
                    for i in range(num_types):
                        seen.append(votes[(b, h, w, *tap, i, o)])
                        shares.append(coefficients[(b, h, w, *tap, i, o)] * activations[(b, *child, i)])
                parents[b, h, w].append(posterior(seen, shares))

    poses = np.zeros((num_images, height, width, num_parents, depth))
    logits = np.zeros(poses.shape[:-1])
    for place, siblings in parents.items():
        for o, parent in enumerate(siblings):
            poses[(*place, o)] = parent["m"]
            logits[(*place, o)] = activation_logit(parent, siblings, beta_u[o], beta_a[o])
    return {
        "poses": poses,
        "activation_logits": logits,
        "activations": 1 / (1 + np.exp(-logits)),
        "coefficients": history,
    }


def _log_weights(votes, parents, children_of):
    """E ln pi_j + ln p_ij for every child and parent."""
    log_weights = np.zeros(votes.shape[:-1])
    for (b, h, w), siblings in parents.items():
        for o, parent in enumerate(siblings):
            log_proportion = expected_log_proportion(parent, siblings)
            for _, tap in children_of[h, w]:
                for i in range(votes.shape[5]):
                    density = expected_log_density(votes[(b, h, w, *tap, i, o)], parent)
                    log_weights[(b, h, w, *tap, i, o)] = log_proportion + density
    return log_weights


def variational_bayes_routing_dense(votes, activations, beta_u, beta_a, num_iterations=3):
    """Route votes[B, I, O, D] of children[B, I] to parents that all see all children: a grid of one position."""
    routed = variational_bayes_routing(
        np.asarray(votes)[:, None, None, None, None],
        np.asarray(activations)[:, None, None],
        beta_u,
        beta_a,
        num_iterations,
    )
    history = [coefficients[:, 0, 0, 0, 0] for coefficients in routed.pop("coefficients")]
    return {**{name: value[:, 0, 0] for name, value in routed.items()}, "coefficients": history}
