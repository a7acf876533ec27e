"""Oracle of self-attention routing, in NumPy float64.

Source: Mazzia, Salvetti, Chiaberge, "Efficient-CapsNet: capsule network with self-attention routing", 2021: the
squash, the agreement of every child with every child, the softmax over parents; the prior after the softmax is the
authors' code.

Written for obvious correctness: one loop per index of the paper, no epsilon.
"""

import numpy as np

from oracles.dynamic_routing import softmax


def exponential_squash(s):
    """v = (1 - exp(-n)) * s / n with n the length of the vector s; the zero vector stays zero, which is the limit."""
    n = np.linalg.norm(s)
    return s if n == 0.0 else (1.0 - np.exp(-n)) * s / n


def self_attention_routing(votes, prior):
    """Route votes[B, I, O, D].

    A_ik^j = u_ij . u_kj / sqrt(D), for all pairs i, k of children
    c_i = softmax over parents j of sum over k of A_ik^j
    v_j = squash(sum over i of (c_ij + b_ij) * u_ij)

    where:
        u = votes, b_ij = prior[O, I]

    Returns a dict: `poses` [B, O, D] and `coefficients`, a list with the [B, I, O] of the only pass.
    """
    votes = np.asarray(votes, dtype=np.float64)
    num_images, num_children, num_parents, depth = votes.shape
    coefficients = np.zeros((num_images, num_children, num_parents))
    poses = np.zeros((num_images, num_parents, depth))
    for b in range(num_images):
        for i in range(num_children):
            agreement = np.zeros(num_parents)
            for j in range(num_parents):
                for k in range(num_children):
                    agreement[j] += np.dot(votes[b, i, j], votes[b, k, j]) / np.sqrt(depth)
            coefficients[b, i] = softmax(agreement)
        for j in range(num_parents):
            total = np.zeros(depth)
            for i in range(num_children):
                total += (coefficients[b, i, j] + prior[j, i]) * votes[b, i, j]
            poses[b, j] = exponential_squash(total)
    return {"poses": poses, "coefficients": [coefficients]}
