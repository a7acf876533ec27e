"""Oracle of dynamic routing between capsules, in NumPy float64.

Source: Sabour, Frosst, Hinton, "Dynamic Routing Between Capsules", 2017: equation 1 (squash), equation 2
(weighted sum), equation 3 (softmax) and Procedure 1 (routing). Bias inside the squash and the leaky softmax:
authors' code. No routing at all: Kiefer et al., "Capsule Networks as Generative Models", 2022, appendix A,
and its code.

Written for obvious correctness: one loop per index of the paper, no epsilon.
"""

import numpy as np


def squash(s):
    """Shrink the vectors on the last axis to length q / (1 + q), keeping their direction (equation 1).

    v = q / (1 + q) * s / sqrt(q)

    where:
        q = the squared length of s; the zero vector stays zero, which is the limit of the expression
    """
    s = np.asarray(s, dtype=np.float64)
    v = np.zeros_like(s)
    for index in np.ndindex(s.shape[:-1]):
        length = np.linalg.norm(s[index])
        if length > 0.0:
            v[index] = length**2 / (1.0 + length**2) * (s[index] / length)
    return v


def softmax(logits, leaky=False):
    """Exponentiate and normalise a vector; `leaky` adds one zero logit and drops its share afterwards."""
    if leaky:
        return softmax(np.append(logits, 0.0))[:-1]
    weights = np.exp(logits - np.max(logits))
    return weights / np.sum(weights)


def dynamic_routing(votes, num_iterations, bias=None, leaky=False):
    """Route votes[B, I, O, D] by agreement (Procedure 1).

    b_ij = 0; then `num_iterations` times:
        c_i = softmax over parents j of b_i
        s_j = sum over i of c_ij * u_ij, plus bias_j
        v_j = squash(s_j)
        b_ij = b_ij + u_ij . v_j

    where:
        u = votes[B, I, O, D], b = logits[B, I, O], c = coefficients[B, I, O], v = poses[B, O, D]
        bias[O, D], or None for zero

    Returns a dict: `poses` [B, O, D] and `coefficients`, a list with the [B, I, O] of each iteration.
    `num_iterations` counts softmaxes, so 1 is uniform coefficients 1 / O. The last update of b has no effect.
    """
    votes = np.asarray(votes, dtype=np.float64)
    if num_iterations < 1:
        raise ValueError(f"num_iterations must be at least 1. Received: {num_iterations}")
    num_images, num_children, num_parents, depth = votes.shape
    bias = np.zeros((num_parents, depth)) if bias is None else np.asarray(bias, dtype=np.float64)

    logits = np.zeros((num_images, num_children, num_parents))
    poses = np.zeros((num_images, num_parents, depth))
    history = []
    for _ in range(num_iterations):
        coefficients = np.zeros_like(logits)
        for b in range(num_images):
            for i in range(num_children):
                coefficients[b, i] = softmax(logits[b, i], leaky)
            for j in range(num_parents):
                total = bias[j].copy()
                for i in range(num_children):
                    total += coefficients[b, i, j] * votes[b, i, j]
                poses[b, j] = squash(total)
            for i in range(num_children):
                for j in range(num_parents):
                    logits[b, i, j] += np.dot(votes[b, i, j], poses[b, j])
        history.append(coefficients)
    return {"poses": poses, "coefficients": history}


def uniform_routing(votes, bias=None, scale="sum"):
    """Add up votes[B, I, O, D] without routing and squash.

    v_j = squash(c * sum over i of u_ij, plus bias_j)

    where:
        c = 1 for scale "sum" (no routing, "r = 0"); c = 1 / O for scale "mean" (one iteration, "r = 1"): each
        child divides itself equally among its parents; the mean is not over the children

    Returns the same dict as `dynamic_routing`, with one entry of coefficients.
    """
    votes = np.asarray(votes, dtype=np.float64)
    num_images, num_children, num_parents, depth = votes.shape
    shares = {"sum": 1.0, "mean": 1.0 / num_parents}
    if scale not in shares:
        raise ValueError(f"scale must be one of {sorted(shares)}. Received: {scale!r}")
    bias = np.zeros((num_parents, depth)) if bias is None else np.asarray(bias, dtype=np.float64)

    poses = np.zeros((num_images, num_parents, depth))
    for b in range(num_images):
        for j in range(num_parents):
            total = bias[j].copy()
            for i in range(num_children):
                total += shares[scale] * votes[b, i, j]
            poses[b, j] = squash(total)
    return {"poses": poses, "coefficients": [np.full((num_images, num_children, num_parents), shares[scale])]}
