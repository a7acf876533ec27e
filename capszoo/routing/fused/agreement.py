"""One round of dynamic routing, from poses of children to sums of their votes, compiled for the CPU.

    u_ij = u_i W_ij
    c_ij = softmax_j(sum_e u_ij[e] V_j[e])
    s_j = sum_i c_ij u_ij

where V_j is the sum of the poses that parent j has had so far. Logits that start at zero and grow by u_ij . v_j are
u_ij . V_j, so that none are kept from round to round. Votes are made where they are used, again on the way back.

Sixteen parents lie side by side, see `lanes`; K blocks of sixteen have room for all. One thread takes one part of the
children after the other, with all images, so that their matrices are read once.
"""

import collections
import math

import numpy as np
from numba import njit, prange

from capszoo.routing.fused.lanes import LANES, exp, fma, highest, load, spread, spread_at, store, total

f32 = np.float32
ZERO, ONE = f32(0.0), f32(1.0)
# The logit of a lane without a parent.
ABSENT = f32(-1e30)
# Of the children. A fixed number, so that no bit of the sums depends on the number of threads.
PARTS = 16

# Numbers of children (I), images (B), entries of a child's pose (D), blocks (K), entries of a parent's pose (E);
# parents (O) of K * 16; leaky: whether a silent parent has the logit 0.
Problem = collections.namedtuple("Problem", "children images width blocks entries parents leaky")
# poses [I, B, D], matrices [I, K, D, E, lanes], sought (V) [B, K, E, lanes].
Inputs = collections.namedtuple("Inputs", "poses matrices sought")
# Of one pair: votes [K, E, lanes], coefficients and what they are worth [K, lanes].
Pair = collections.namedtuple("Pair", "votes coefficients worth")


@njit(error_model="numpy")
def _pair(problem):
    lanes = problem.blocks * LANES
    return Pair(np.empty(lanes * problem.entries, f32), np.empty(lanes, f32), np.empty(lanes, f32))


@njit(error_model="numpy")
def _make_votes(problem, inputs, i, b, votes):
    row = problem.entries * LANES
    u = (i * problem.images + b) * problem.width
    for k in range(problem.blocks):
        w = (i * problem.blocks + k) * problem.width * row
        for e in range(0, row, LANES):
            vote = spread(ZERO)
            for d in range(problem.width):
                vote = fma(spread_at(inputs.poses, u + d), load(inputs.matrices, w + d * row + e), vote)
            store(votes, k * row + e, vote)


@njit(error_model="numpy")
def _compare(problem, inputs, b, pair):
    """Coefficients of the votes at hand."""
    row = problem.entries * LANES
    top = ZERO if problem.leaky else ABSENT
    for k in range(problem.blocks):
        logit = spread(ZERO)
        for e in range(k * row, (k + 1) * row, LANES):
            logit = fma(load(pair.votes, e), load(inputs.sought, b * problem.blocks * row + e), logit)
        store(pair.coefficients, k * LANES, logit)
        for lane in range(max(problem.parents, k * LANES), (k + 1) * LANES):
            pair.coefficients[lane] = ABSENT
        top = max(top, highest(load(pair.coefficients, k * LANES)))
    together = f32(math.exp(-top)) if problem.leaky else ZERO
    for k in range(0, problem.blocks * LANES, LANES):
        term = exp(load(pair.coefficients, k) - spread(top))
        store(pair.coefficients, k, term)
        together += total(term)
    for k in range(0, problem.blocks * LANES, LANES):
        store(pair.coefficients, k, load(pair.coefficients, k) * spread(ONE / together))


@njit(error_model="numpy")
def _forward_part(problem, inputs, sums, coefficients, begin, end):
    pair = _pair(problem)
    row, lanes = problem.entries * LANES, problem.blocks * LANES
    for i in range(begin, end):
        for b in range(problem.images):
            _make_votes(problem, inputs, i, b, pair.votes)
            _compare(problem, inputs, b, pair)
            for k in range(problem.blocks):
                coefficient = load(pair.coefficients, k * LANES)
                store(coefficients, (i * problem.images + b) * lanes + k * LANES, coefficient)
                for e in range(k * row, (k + 1) * row, LANES):
                    s = b * problem.blocks * row + e
                    store(sums, s, fma(coefficient, load(pair.votes, e), load(sums, s)))


@njit(parallel=True, error_model="numpy", cache=True)
def forward(problem, inputs):
    """Sums of each part of the children, `[PARTS, B, K, E, lanes]`, and coefficients `[I, B, K, lanes]`."""
    sums = np.zeros((PARTS, inputs.sought.shape[0]), f32)
    coefficients = np.empty(problem.children * problem.images * problem.blocks * LANES, f32)
    for part in prange(PARTS):
        begin, end = problem.children * part // PARTS, problem.children * (part + 1) // PARTS
        _forward_part(problem, inputs, sums[part], coefficients, begin, end)
    return sums, coefficients


@njit(error_model="numpy")
def _to_votes(problem, inputs, sums, coefficients, i, b, pair, sought):
    """From gradients of sums and coefficients to those of the votes, in their place, and of what was sought."""
    row, lanes = problem.entries * LANES, problem.blocks * LANES
    mean = ZERO
    for k in range(problem.blocks):
        worth = load(coefficients, (i * problem.images + b) * lanes + k * LANES)
        for e in range(k * row, (k + 1) * row, LANES):
            worth = fma(load(pair.votes, e), load(sums, b * problem.blocks * row + e), worth)
        store(pair.worth, k * LANES, worth)
        mean += total(load(pair.coefficients, k * LANES) * worth)
    for k in range(problem.blocks):
        coefficient = load(pair.coefficients, k * LANES)
        slope = coefficient * (load(pair.worth, k * LANES) - spread(mean))
        for e in range(k * row, (k + 1) * row, LANES):
            s = b * problem.blocks * row + e
            store(sought, s, fma(slope, load(pair.votes, e), load(sought, s)))
            store(pair.votes, e, fma(coefficient, load(sums, s), slope * load(inputs.sought, s)))


@njit(error_model="numpy")
def _to_inputs(problem, inputs, i, b, votes, poses, matrices):
    """From gradients of the votes to those of the pose and of the matrices of a child."""
    row = problem.entries * LANES
    u = (i * problem.images + b) * problem.width
    for k in range(problem.blocks):
        for d in range(problem.width):
            w = ((i * problem.blocks + k) * problem.width + d) * row
            entry, gradient = spread_at(inputs.poses, u + d), spread(ZERO)
            for e in range(0, row, LANES):
                vote = load(votes, k * row + e)
                gradient = fma(vote, load(inputs.matrices, w + e), gradient)
                store(matrices, w + e, fma(entry, vote, load(matrices, w + e)))
            poses[u + d] += total(gradient)


@njit(error_model="numpy")
def _backward_part(problem, inputs, sums, coefficients, poses, matrices, sought, begin, end):
    pair = _pair(problem)
    for i in range(begin, end):
        for b in range(problem.images):
            _make_votes(problem, inputs, i, b, pair.votes)
            _compare(problem, inputs, b, pair)
            _to_votes(problem, inputs, sums, coefficients, i, b, pair, sought)
            _to_inputs(problem, inputs, i, b, pair.votes, poses, matrices)


@njit(parallel=True, error_model="numpy", cache=True)
def backward(problem, inputs, sums, coefficients):
    """Gradients of poses, matrices and of what was sought, this by parts, from those of sums and coefficients."""
    poses, matrices = np.zeros_like(inputs.poses), np.zeros_like(inputs.matrices)
    sought = np.zeros((PARTS, inputs.sought.shape[0]), f32)
    for part in prange(PARTS):
        begin, end = problem.children * part // PARTS, problem.children * (part + 1) // PARTS
        _backward_part(problem, inputs, sums, coefficients, poses, matrices, sought[part], begin, end)
    return poses, matrices, sought
