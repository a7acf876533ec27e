"""Votes between matrix capsules, made where they are used: what every fused routing shares.

A vote is V = M W + addition, of 4x4 matrices. Arrays are flat, float32, and their axes are, from the slowest,

    B images, T iterations, P positions of parents, I children seen from one position, C children of an image,
    K blocks of 16 types of parents (the lanes; the last block may have padding), D = 16 entries of a pose,
    Q = 16 entries of a transformation, listed row by row as the pose is.
"""

import collections

import numpy as np
from numba import njit

from capszoo.routing.fused.lanes import LANES, fma, load, spread, spread_at, store, total

POSE = 16
TILE = POSE * LANES
# Images that a thread takes at once. Gradients of weights are summed by chunks, so that they do not depend on the
# number of threads.
CHUNK = 4
ZERO = np.float32(0.0)

# child [P, I]: number of a child in its image; matrix [I]: number of its transformation; addition [I, D];
# uniform [P, I]: R of iteration 0; scales [T]: lambda_t; children: C; blocks: K; types: of parents, without padding.
Problem = collections.namedtuple(
    "Problem", "child matrix addition uniform scales children blocks types mass_floor variance_floor"
)
# poses [B, C, D], activations [B, C], weights [transformations, K, Q, lanes], beta_u and beta_a [K, lanes].
Inputs = collections.namedtuple("Inputs", "poses activations weights beta_u beta_a")
# Gradients of `Inputs`; those of weights, beta_u and beta_a by chunk.
Gradients = collections.namedtuple("Gradients", "poses activations weights beta_u beta_a")


@njit(inline="always")
def row_of(poses, m):
    """A row of a pose, each entry in all lanes."""
    return spread_at(poses, m), spread_at(poses, m + 1), spread_at(poses, m + 2), spread_at(poses, m + 3)


@njit(inline="always")
def vote(row, start, weights, w):
    """One entry of the votes for 16 types: `start` plus the row times the column at `w`."""
    entry = fma(row[0], load(weights, w), start)
    entry = fma(row[1], load(weights, w + 4 * LANES), entry)
    entry = fma(row[2], load(weights, w + 8 * LANES), entry)
    return fma(row[3], load(weights, w + 12 * LANES), entry)


@njit(inline="always")
def _add_moments(row, start, weights, w, coefficient, first, second):
    deviation = vote(row, start, weights, w)
    weighted = coefficient * deviation
    return first + weighted, fma(weighted, deviation, second)


@njit(error_model="numpy")
def moments(problem, inputs, b, p, k, coefficients, centre, s, first, second):
    """Sums over the children of position p: coefficient * (v - centre), and coefficient * (v - centre)^2."""
    poses, weights, child, matrix, addition = (
        inputs.poses,
        inputs.weights,
        problem.child,
        problem.matrix,
        problem.addition,
    )
    seen, blocks = child.shape[1], problem.blocks
    zero = spread(ZERO)
    for r in range(4):
        d = 4 * r * LANES
        c0, c1 = load(centre, s + d), load(centre, s + d + LANES)
        c2, c3 = load(centre, s + d + 2 * LANES), load(centre, s + d + 3 * LANES)
        f0, f1, f2, f3, g0, g1, g2, g3 = zero, zero, zero, zero, zero, zero, zero, zero
        for i in range(seen):
            row = row_of(poses, (b * problem.children + child[p, i]) * POSE + 4 * r)
            a, w = i * POSE + 4 * r, (matrix[i] * blocks + k) * TILE
            h = load(coefficients, ((p * seen + i) * blocks + k) * LANES)
            f0, g0 = _add_moments(row, spread_at(addition, a) - c0, weights, w, h, f0, g0)
            f1, g1 = _add_moments(row, spread_at(addition, a + 1) - c1, weights, w + LANES, h, f1, g1)
            f2, g2 = _add_moments(row, spread_at(addition, a + 2) - c2, weights, w + 2 * LANES, h, f2, g2)
            f3, g3 = _add_moments(row, spread_at(addition, a + 3) - c3, weights, w + 3 * LANES, h, f3, g3)
        store(first, d, f0)
        store(first, d + LANES, f1)
        store(first, d + 2 * LANES, f2)
        store(first, d + 3 * LANES, f3)
        store(second, d, g0)
        store(second, d + LANES, g1)
        store(second, d + 2 * LANES, g2)
        store(second, d + 3 * LANES, g3)


@njit(error_model="numpy")
def product_gradients(problem, inputs, gradients, b, chunk, j, matrix, k, tile):
    """V = M W: dM = dV W^T and dW = M^T dV for one pair, whose dV is `tile`."""
    m, w = (b * problem.children + j) * POSE, (matrix * problem.blocks + k) * TILE
    g = chunk * inputs.weights.shape[0] + w
    for r in range(4):
        v0, v1 = load(tile, 4 * r * LANES), load(tile, (4 * r + 1) * LANES)
        v2, v3 = load(tile, (4 * r + 2) * LANES), load(tile, (4 * r + 3) * LANES)
        for q in range(4):
            row = w + 4 * q * LANES
            product = v0 * load(inputs.weights, row)
            product = fma(v1, load(inputs.weights, row + LANES), product)
            product = fma(v2, load(inputs.weights, row + 2 * LANES), product)
            product = fma(v3, load(inputs.weights, row + 3 * LANES), product)
            gradients.poses[m + 4 * r + q] += total(product)
    for q in range(4):
        m0, m1 = spread_at(inputs.poses, m + q), spread_at(inputs.poses, m + 4 + q)
        m2, m3 = spread_at(inputs.poses, m + 8 + q), spread_at(inputs.poses, m + 12 + q)
        for c in range(4):
            d = (4 * q + c) * LANES
            gradient = fma(m0, load(tile, c * LANES), load(gradients.weights, g + d))
            gradient = fma(m1, load(tile, (4 + c) * LANES), gradient)
            gradient = fma(m2, load(tile, (8 + c) * LANES), gradient)
            gradient = fma(m3, load(tile, (12 + c) * LANES), gradient)
            store(gradients.weights, g + d, gradient)
