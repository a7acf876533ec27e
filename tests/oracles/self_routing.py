"""Oracle of self-routing, in NumPy float64.

Source: Hahn, Pyeon, Kim, "Self-routing capsule networks", NeurIPS 2019, equations of section 3: every child decides by
itself, with a small network of its own, how it is shared; parents are means, weighted with activations and shares.

Written for obvious correctness: one loop per index of the paper, no epsilon.
"""

import numpy as np

from oracles.dynamic_routing import softmax


def self_routing(votes, activations, bias):
    """Route votes[B, I, O, D] and activations[B, I]; the last number of a vote is the logit of its coefficient.

    c_i = softmax over parents j of (logit_ij + b_ij)
    a_j = sum over i of c_ij * a_i / sum over i of a_i
    M_j = sum over i of c_ij * a_i * V_ij / sum over i of c_ij * a_i

    where:
        V = votes, b_ij = bias[O, I]

    Returns a dict: `poses` [B, O, D], `activations` [B, O] and `coefficients`, a list with the [B, I, O] of the only
    pass.
    """
    votes = np.asarray(votes, dtype=np.float64)
    num_images, num_children, num_parents, depth = votes.shape
    coefficients = np.zeros((num_images, num_children, num_parents))
    poses = np.zeros((num_images, num_parents, depth))
    parents = np.zeros((num_images, num_parents))
    for b in range(num_images):
        for i in range(num_children):
            logits = [votes[b, i, j, -1] + bias[j, i] for j in range(num_parents)]
            coefficients[b, i] = softmax(np.array(logits))
        for j in range(num_parents):
            weight, total = 0.0, np.zeros(depth)
            for i in range(num_children):
                share = coefficients[b, i, j] * activations[b, i]
                weight += share
                total += share * votes[b, i, j]
            parents[b, j] = weight / np.sum(activations[b])
            poses[b, j] = total / weight
    return {"poses": poses, "activations": parents, "coefficients": [coefficients]}
