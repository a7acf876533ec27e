"""Oracle of the top-down attention model of capsules, in NumPy float64.

Source: Kiefer, Millidge, Tschantz, Buckley, "Capsule Networks as Generative Models", 2022: equation 6 (attention of a
part over the predictions of its possible parents), section 4.1 (accumulated similarities) and equations 7 and 8
(mixture of Gaussians with von Mises-Fisher gates). Density of the von Mises-Fisher distribution: Mardia and Jupp,
"Directional Statistics", 2000, section 9.3.2; its Bessel function is SciPy's.

Written for obvious correctness: one loop per index of the paper.
"""

import numpy as np
from scipy.special import ive, softmax


def attention(predictions, query, num_iterations, accumulate=False):
    """Parts v[B, m, d] by iterated attention over predictions u[B, n, m, d] of n parents (equation 6).

    v_i = query_i; then `num_iterations` times:
        b_ij = v_i . u_ij                 with `accumulate` added to the b_ij from before
        c_i = softmax over parents j of b_i
        v_i = sum over j of c_ij u_ij

    Returns a dict: `poses` v, `activations` [B, m], the largest c_ij of each part, and `coefficients`, a list with the
    [B, n, m] of each iteration.
    """
    predictions = np.asarray(predictions, dtype=np.float64)
    images, parents, parts, depth = predictions.shape
    v = np.zeros((images, parts, depth))
    b = np.zeros((images, parents, parts))
    history = []
    for image in range(images):
        v[image] = query
    for _ in range(num_iterations):
        c = np.zeros((images, parents, parts))
        for image in range(images):
            for i in range(parts):
                u = predictions[image, :, i]
                similarity = np.array([v[image, i] @ u[j] for j in range(parents)])
                b[image, :, i] = similarity + (b[image, :, i] if accumulate else 0)
                c[image, :, i] = softmax(b[image, :, i])
                v[image, i] = sum(c[image, j, i] * u[j] for j in range(parents))
        history.append(c)
    return {"poses": v, "activations": history[-1].max(axis=1), "coefficients": history}


def log_bessel_i(order, x):
    """ln I_order(x), by SciPy's exponentially scaled function."""
    return np.log(ive(order, x)) + x


def log_von_mises_fisher(v, mean, kappa):
    """Log-density on the unit sphere in d dimensions, of the directions of v and mean.

    C_d(kappa) exp(kappa v/|v| . mean/|mean|),   C_d = kappa^(d/2 - 1) / ((2 pi)^(d/2) I_(d/2 - 1)(kappa))
    """
    d = len(v)
    cosine = v @ mean / np.linalg.norm(v) / np.linalg.norm(mean)
    normaliser = (d / 2 - 1) * np.log(kappa) - d / 2 * np.log(2 * np.pi) - log_bessel_i(d / 2 - 1, kappa)
    return normaliser + kappa * cosine


def gates(query, means, kappas, rule="log_density"):
    """Mixing weights p_i[n] of one part: the softmax of equation 7 over densities, or over their logarithms.

    where: query [d], means u_i [n, d], kappas [n].
    """
    logarithms = np.array([log_von_mises_fisher(query, m, k) for m, k in zip(means, kappas, strict=True)])
    return softmax(logarithms if rule == "log_density" else np.exp(logarithms))


def log_gaussian(v, mean, sigma):
    """ln N(v; mean, sigma^2 I)."""
    return -np.sum((v - mean) ** 2) / (2 * sigma**2) - len(v) / 2 * np.log(2 * np.pi * sigma**2)


def log_part_density(v, query, means, sigmas, kappas, rule="log_density"):
    """ln sum_j pi_j N(v; u_j, sigma_j) of one part (equation 7), the gates pi taken at `query`.

    With query = v it is the equation as printed, whose integral over v is not 1.
    """
    weights = gates(query, means, kappas, rule)
    return np.log(
        sum(p * np.exp(log_gaussian(v, m, s)) for p, m, s in zip(weights, means, sigmas, strict=True))
    )


def responsibilities(v, query, means, sigmas, kappas, rule="log_density"):
    """Probability of each parent of one part given v, by Bayes' rule: pi_j N(v; u_j, sigma_j), normalised."""
    weights = gates(query, means, kappas, rule)
    joint = np.array(
        [p * np.exp(log_gaussian(v, m, s)) for p, m, s in zip(weights, means, sigmas, strict=True)]
    )
    return joint / joint.sum()
