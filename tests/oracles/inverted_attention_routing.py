"""Oracle of inverted dot-product attention routing, in NumPy float64.

Source: Tsai, Srivastava, Goh, Salakhutdinov, "Capsules with inverted dot-product attention routing", ICLR 2020,
Procedure 1 (a layer) and Procedure 2 (all layers, updated concurrently).

Written for obvious correctness: one loop per index of the paper, no epsilon.
"""

import numpy as np

from oracles.dynamic_routing import softmax


def layer_normalised(pose, scale, offset):
    """(x - mean of x) / deviation of x * scale + offset, over the entries of one pose."""
    return (pose - pose.mean()) / pose.std() * scale + offset


def first_parents(votes, scale, offset):
    """Parents `[O, D]` of votes `[I, O, D]`, every child giving each of O parents the same share 1 / O."""
    num_children, num_parents, _ = votes.shape
    coefficients = np.full((num_children, num_parents), 1.0 / num_parents)
    return _parents(votes, coefficients, scale, offset), coefficients


def next_parents(votes, parents, scale, offset):
    """Parents `[O, D]` after one more iteration.

    a_ij = p_j . v_ij / sqrt(D)
    r_ij = exp(a_ij) / sum_k exp(a_ik)               # over parents k: they compete for the child
    p_j = LayerNorm(sum_i r_ij v_ij)
    """
    num_children, num_parents, depth = votes.shape
    coefficients = np.zeros((num_children, num_parents))
    for i in range(num_children):
        agreement = [parents[j] @ votes[i, j] / np.sqrt(depth) for j in range(num_parents)]
        coefficients[i] = softmax(np.array(agreement))
    return _parents(votes, coefficients, scale, offset), coefficients


def _parents(votes, coefficients, scale, offset):
    parents = np.zeros(votes.shape[1:])
    for j in range(votes.shape[1]):
        total = sum(coefficients[i, j] * votes[i, j] for i in range(len(votes)))
        parents[j] = layer_normalised(total, scale, offset)
    return parents


def inverted_attention_routing(votes, scale, offset, num_iterations):
    """Route votes[B, I, O, D] of one layer; all parents are present.

    Returns a dict: `poses` [B, O, D], `activations` [B, O], all one, and `coefficients`, a list with the [B, I, O] of
    each iteration.
    """
    votes = np.asarray(votes, dtype=np.float64)
    poses, history = np.zeros((len(votes), *votes.shape[2:])), np.zeros((num_iterations, *votes.shape[:3]))
    for b in range(len(votes)):
        parents, history[0, b] = first_parents(votes[b], scale, offset)
        for t in range(1, num_iterations):
            parents, history[t, b] = next_parents(votes[b], parents, scale, offset)
        poses[b] = parents
    return {"poses": poses, "activations": np.ones(poses.shape[:2]), "coefficients": list(history)}


def concurrent_routing(capsules, levels, num_iterations):
    """Route capsules[H, W, I, side, side] of one image through several layers at once.

    First every layer gets its first parents from the layer below, from the bottom up. Then, `num_iterations` - 1
    times, all layers get their next parents at the same time: from what the layer below and they themselves were
    before.

    where:
        levels = one dict per layer: `window` (K, stride) or None, where each parent sees all capsules; `matrices`
            [K, K, I, side, O, side], or [H, W, I, side, O, side]; `scale` and `offset` [side * side]

    Returns the capsules of each layer, [H', W', O, side, side], the last as [O, side, side], and the coefficients of
    the last layer at each iteration.
    """
    state, history = [], []
    for number, level in enumerate(levels):
        below = state[number - 1] if number else capsules
        parents, coefficients = _layer(below, level, None)
        state.append(parents)
    history.append(coefficients)
    for _ in range(1, num_iterations):
        before = [capsules, *state]
        state = []
        for number, level in enumerate(levels):
            parents, coefficients = _layer(before[number], level, before[number + 1])
            state.append(parents)
        history.append(coefficients)
    last = state[-1]
    return [*state[:-1], last[0, 0]], history


def _layer(children, level, parents):
    height, width, _, side, _ = children.shape
    size, stride = level["window"] or (height, 1)
    rows, columns = (height - size) // stride + 1, (width - (level["window"] or (width, 1))[0]) // stride + 1
    num_parents = level["matrices"].shape[4]
    found = np.zeros((rows, columns, num_parents, side, side))
    for y, x in np.ndindex(rows, columns):
        votes = []
        for ky, kx, i in np.ndindex(level["matrices"].shape[:3]):
            child = children[y * stride + ky, x * stride + kx, i]
            votes.append([(child @ level["matrices"][ky, kx, i, :, j]).ravel() for j in range(num_parents)])
        normalisation = level["scale"], level["offset"]
        if parents is None:
            result, coefficients = first_parents(np.array(votes), *normalisation)
        else:
            before = parents[y, x].reshape(num_parents, side * side)
            result, coefficients = next_parents(np.array(votes), before, *normalisation)
        found[y, x] = result.reshape(num_parents, side, side)
    return found, coefficients
