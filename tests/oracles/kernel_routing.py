"""Oracle of similarity-learning routing, in NumPy float64.

Source: Faria, "Learning to compute inner consensus", 2019, Algorithm 1 and section 4.1: equations 2 and 3 (the
objective and its constraint), 4 (pose), 11 (coefficients), 12 (compatibility), 13 (activation), 15 (mixture of
Gaussians). The formulas lost their symbols in print; they are derived again from equation 2 and checked against
numeric minimisation in the tests. Equation 13 and the spectral mixture: the author's code.

Written for obvious correctness: one loop per index of the paper, no epsilon unless it is asked for.
"""

import numpy as np


def softmax(logits):
    """exp(x_i) / sum_l exp(x_l) of a vector."""
    weights = np.exp(logits - np.max(logits))
    return weights / np.sum(weights)


def gaussian_mixture(pose, vote, mixing, scales):
    """k(mu, v) = sum over q of w_q exp(-|mu - v|^2 / (2 sigma_q^2)), w = softmax(mixing) (equation 15)."""
    distance = np.sum((pose - vote) ** 2)
    terms = [np.exp(-distance / (2.0 * scale**2)) for scale in scales]
    return np.dot(softmax(mixing), terms)


def spectral_mixture(pose, vote, mixing, bandwidths, frequencies):
    """k(mu, v) = sum over q and d of w_q exp(-2 pi^2 r_d^2 nu_qd) cos(2 pi r_d m_qd), r = mu - v (code)."""
    difference = pose - vote
    terms = []
    for bandwidth, frequency in zip(bandwidths, frequencies, strict=True):
        envelope = np.exp(-2.0 * np.pi**2 * difference**2 * bandwidth)
        terms.append(np.sum(envelope * np.cos(2.0 * np.pi * difference * frequency)))
    return np.dot(softmax(mixing), terms)


def objective(coefficients, similarities, activations, alpha, beta):
    """J = -sum_i c_i k_i + alpha sum_i c_i ln(n c_i) + beta sum_i c_i ln(c_i / a_i) (equation 2)."""
    n = len(coefficients)
    total = 0.0
    for c, k, a in zip(coefficients, similarities, activations, strict=True):
        total += -c * k + alpha * c * np.log(n * c) + beta * c * np.log(c / a)
    return total


def best_coefficients(similarities, activations, alpha, beta):
    """c_i = a_i^(beta/(alpha+beta)) exp(k_i/(alpha+beta)) / sum_l of the same (equation 11)."""
    sharpness = 1.0 / (alpha + beta)
    weights = activations ** (beta * sharpness) * np.exp(similarities * sharpness)
    return weights / np.sum(weights)


def least_objective(similarities, activations, alpha, beta):
    """J at its minimum: alpha ln n - (alpha + beta) ln sum_i a_i^(beta/(alpha+beta)) exp(k_i/(alpha+beta))."""
    sharpness = 1.0 / (alpha + beta)
    weights = activations ** (beta * sharpness) * np.exp(similarities * sharpness)
    return alpha * np.log(len(similarities)) - np.log(np.sum(weights)) / sharpness


def kernel_routing(votes, activations, kernel, alpha, beta, theta, num_iterations=3, floor=0.0):
    """Route votes[B, I, O, D] of children with activations[B, I] by Algorithm 1 with equations 12 and 13.

    where:
        kernel = a function of a pose[D] and a vote[D]
        alpha, beta = [O]; theta = [3, O], theta_1, theta_2, theta_3 of equation 13
        num_iterations = T, the updates of the coefficients after the uniform ones
        floor = added to every activation before its logarithm is taken

    Returns a dict: `poses` [B, O, D], `activations` [B, O] and `coefficients`, the c[B, I, O] of each iteration.
    """
    votes = np.asarray(votes, dtype=np.float64)
    activations = np.asarray(activations, dtype=np.float64) + floor
    images, children, parents, depth = votes.shape
    poses, outputs = np.zeros((images, parents, depth)), np.zeros((images, parents))
    history = np.zeros((num_iterations, images, children, parents))
    for b in range(images):
        for j in range(parents):
            own = votes[b, :, j]  # [I, D]
            coefficients = np.full(children, 1.0 / children)
            pose = coefficients @ own
            for t in range(num_iterations):
                similarities = np.array([kernel(pose, vote) for vote in own])
                coefficients = best_coefficients(similarities, activations[b], alpha[j], beta[j])
                pose = coefficients @ own
                history[t, b, :, j] = coefficients
            similarities = np.array([kernel(pose, vote) for vote in own])
            logit = theta[0][j] * (coefficients @ similarities) + theta[1][j]
            logit += theta[2][j] * (coefficients @ np.log(activations[b]))
            poses[b, j], outputs[b, j] = pose, 1.0 / (1.0 + np.exp(-logit))
    return {"poses": poses, "activations": outputs, "coefficients": list(history)}
