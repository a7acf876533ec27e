"""One round of dynamic routing, from poses of children to sums of their votes, compiled for the CPU.

    u_ij = u_i W_ij
    c_ij = softmax_j(sum_e u_ij[e] V_j[e])
    s_j = sum_i c_ij u_ij

where V_j, the accumulated pose, is the sum of the poses that parent j has had so far. Logits that start at zero and
grow by u_ij . v_j are u_ij . V_j, so that none are kept from round to round. Votes are made where they are used, again
on the way back.

The gradient, where d y is that of the loss by y (Sabour et al. 2017, equations 2 and 3, Procedure 1):

    d c_ij += d s_j . u_ij                                                              # equation 2
    d b_ij = c_ij (d c_ij - sum_k c_ik d c_ik)                                          # equation 3; b = u . V
    d u_ij = c_ij d s_j + d b_ij V_j           d V_j = sum_i d b_ij u_ij                # line 7
    d u_i = sum_j d u_ij W_ij^T                d W_ij = u_i^T d u_ij

The silent parent of a leaky softmax has no votes: it is in the sum of the softmax alone, and its d c is zero.

Sixteen parents lie side by side, see `lanes`; K blocks of sixteen have room for all. One thread takes one part of the
children after the other, with all images, four at a time, so that matrices come once from memory and seldom from the
cache.
"""

import collections
import math

import numpy as np

from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.entrance import check_count, kernel
from capszoo.routing.cpu.lanes import (
    LANES,
    broadcast,
    broadcast_at,
    exp,
    fma,
    horizontal_max,
    horizontal_sum,
    load,
    store,
)

f32 = np.float32
ZERO, ONE = f32(0.0), f32(1.0)
# The logit of a lane without a parent.
ABSENT = f32(-1e30)
# Of the children. A fixed number, so that no bit of the sums depends on the number of threads.
PARTS = 16
# Images at a time; their number is a multiple of it.
FOUR = 4

# Numbers of children (I), images (B), entries of a child's pose (D), blocks (K), entries of a parent's pose (E);
# parents (O) of K * 16; leaky: whether a silent parent has the logit 0.
Problem = collections.namedtuple("Problem", "children images width blocks entries parents leaky")
# poses [I, B, D], matrices [I, K, D, E, lanes], accumulated (V) [B, K, E, lanes].
Inputs = collections.namedtuple("Inputs", "poses matrices accumulated")
# Of one child in four images: votes [4, K, E, lanes], coefficients and their gradients [4, K, lanes]; absent
# [K, lanes]: what is added to logits, zero where there is a parent.
Pairs = collections.namedtuple("Pairs", "votes coefficients d_coefficients absent")


@inner
def _pairs(problem):
    lanes = problem.blocks * LANES
    absent = np.zeros(lanes, f32)
    absent[problem.parents :] = ABSENT
    votes = np.empty(FOUR * lanes * problem.entries, f32)
    return Pairs(votes, np.empty(FOUR * lanes, f32), np.empty(FOUR * lanes, f32), absent)


@inner
def _make_votes(problem, inputs, i, b, votes):
    row, poses, width = problem.entries * LANES, inputs.poses, problem.width
    stride = problem.blocks * row
    u0 = (i * problem.images + b) * width
    u1, u2, u3 = u0 + width, u0 + 2 * width, u0 + 3 * width
    for k in range(problem.blocks):
        w = (i * problem.blocks + k) * width * row
        for e in range(0, row, LANES):
            v0, v1, v2, v3 = broadcast(ZERO), broadcast(ZERO), broadcast(ZERO), broadcast(ZERO)
            for d in range(width):
                weight = load(inputs.matrices, w + d * row + e)
                v0 = fma(broadcast_at(poses, u0 + d), weight, v0)
                v1 = fma(broadcast_at(poses, u1 + d), weight, v1)
                v2 = fma(broadcast_at(poses, u2 + d), weight, v2)
                v3 = fma(broadcast_at(poses, u3 + d), weight, v3)
            at = k * row + e
            store(votes, at, v0)
            store(votes, at + stride, v1)
            store(votes, at + 2 * stride, v2)
            store(votes, at + 3 * stride, v3)


@inner
def _dot(problem, votes, others, b, k, start, found):
    """found = start + votes . others of block k: start and found `[4, K, lanes]`, others `[B, K, E, lanes]`."""
    row, lanes = problem.entries * LANES, problem.blocks * LANES
    stride, f, s = problem.blocks * row, k * LANES, b * problem.blocks * row
    a0, a1 = load(start, f), load(start, f + lanes)
    a2, a3 = load(start, f + 2 * lanes), load(start, f + 3 * lanes)
    for e in range(k * row, (k + 1) * row, LANES):
        a0 = fma(load(votes, e), load(others, s + e), a0)
        a1 = fma(load(votes, e + stride), load(others, s + e + stride), a1)
        a2 = fma(load(votes, e + 2 * stride), load(others, s + e + 2 * stride), a2)
        a3 = fma(load(votes, e + 3 * stride), load(others, s + e + 3 * stride), a3)
    store(found, f, a0)
    store(found, f + lanes, a1)
    store(found, f + 2 * lanes, a2)
    store(found, f + 3 * lanes, a3)


@inner
def _compare(problem, inputs, b, pairs):
    """Coefficients of the votes at hand."""
    coefficients, lanes = pairs.coefficients, problem.blocks * LANES
    for c in range(0, FOUR * lanes, LANES):
        store(coefficients, c, load(pairs.absent, c % lanes))
    for k in range(problem.blocks):
        _dot(problem, pairs.votes, inputs.accumulated, b, k, coefficients, coefficients)
    for begin in range(0, FOUR * lanes, lanes):
        largest = ZERO if problem.leaky else ABSENT
        for c in range(begin, begin + lanes, LANES):
            largest = max(largest, horizontal_max(load(coefficients, c)))
        summed = f32(math.exp(-largest)) if problem.leaky else ZERO
        for c in range(begin, begin + lanes, LANES):
            term = exp(load(coefficients, c) - broadcast(largest))
            store(coefficients, c, term)
            summed += horizontal_sum(term)
        for c in range(begin, begin + lanes, LANES):
            store(coefficients, c, load(coefficients, c) * broadcast(ONE / summed))


@inner
def _children(problem, part):
    """The children of one part."""
    return range(problem.children * part // PARTS, problem.children * (part + 1) // PARTS)


def _inputs(problem):
    """Shapes of the inputs of a problem that is as it should be."""
    for name in ("children", "width", "blocks", "entries", "parents"):
        check_count(name, getattr(problem, name), 1)
    check_count("images", problem.images)
    if problem.images % FOUR or problem.blocks != -(-problem.parents // LANES):
        expected = f"images must be a multiple of {FOUR}, and blocks have room for {problem.parents} parents"
        raise ValueError(f"{expected}. Received: {problem.images} and {problem.blocks}")
    i, b, d, k, e = problem[:5]
    return Inputs((i, b, d), (i, k, d, e, LANES), (b, k, e, LANES))


def _outputs(problem):
    """Shapes of sums, without the parts, and of coefficients."""
    blocks = problem.blocks
    return (problem.images, blocks, problem.entries, LANES), (
        problem.children,
        problem.images,
        blocks * LANES,
    )


def _forward(problem):
    inputs, (sums, coefficients) = _inputs(problem), _outputs(problem)
    return inputs, (PARTS, *sums), coefficients


def _backward(problem):
    inputs = _inputs(problem)
    return inputs, *_outputs(problem), inputs._replace(accumulated=(PARTS, *inputs.accumulated))


def _parts(problem):
    return PARTS


@kernel(_forward, _parts)
def forward_part(problem, inputs, sums, coefficients, part):
    """`forward` for one part of the children."""
    pairs, own = _pairs(problem), part * len(inputs.accumulated)
    row, lanes = problem.entries * LANES, problem.blocks * LANES
    for i in _children(problem, part):
        for b in range(0, problem.images, FOUR):
            _make_votes(problem, inputs, i, b, pairs.votes)
            _compare(problem, inputs, b, pairs)
            c, s = (i * problem.images + b) * lanes, own + b * problem.blocks * row
            for k in range(FOUR * problem.blocks):
                coefficient = load(pairs.coefficients, k * LANES)
                store(coefficients, c + k * LANES, coefficient)
                for e in range(k * row, (k + 1) * row, LANES):
                    store(sums, s + e, fma(coefficient, load(pairs.votes, e), load(sums, s + e)))


def forward(problem, inputs):
    """Sums of each part of the children, `[PARTS, B, K, E, lanes]`, and coefficients `[I, B, K * lanes]`."""
    _, sums, coefficients = _forward(problem)
    sums, coefficients = np.zeros(sums, f32), np.empty(coefficients, f32)
    forward_part(problem, inputs, sums, coefficients)
    return sums, coefficients


@inner
def _to_votes(problem, inputs, sums, coefficients, i, b, pairs, accumulated, own):
    """From gradients of sums and coefficients to those of the votes, in their place, and of the accumulated poses."""
    row, lanes, d_coefficients = problem.entries * LANES, problem.blocks * LANES, pairs.d_coefficients
    c, s = (i * problem.images + b) * lanes, b * problem.blocks * row
    for k in range(0, FOUR * lanes, LANES):
        store(d_coefficients, k, load(coefficients, c + k))
    for k in range(problem.blocks):
        _dot(problem, pairs.votes, sums, b, k, d_coefficients, d_coefficients)
    for image in range(FOUR):
        mean = ZERO
        for k in range(image * lanes, (image + 1) * lanes, LANES):
            mean += horizontal_sum(load(pairs.coefficients, k) * load(d_coefficients, k))
        for k in range(image * problem.blocks, (image + 1) * problem.blocks):
            coefficient = load(pairs.coefficients, k * LANES)
            slope = coefficient * (load(d_coefficients, k * LANES) - broadcast(mean))
            for e in range(k * row, (k + 1) * row, LANES):
                at = own + s + e
                store(accumulated, at, fma(slope, load(pairs.votes, e), load(accumulated, at)))
                gradient = fma(coefficient, load(sums, s + e), slope * load(inputs.accumulated, s + e))
                store(pairs.votes, e, gradient)


@inner
def _to_inputs(problem, inputs, i, b, votes, poses, matrices):
    """From gradients of the votes to those of the poses and of the matrices of a child."""
    row, width = problem.entries * LANES, problem.width
    stride = problem.blocks * row
    for k in range(problem.blocks):
        for d in range(width):
            w = ((i * problem.blocks + k) * width + d) * row
            u0 = (i * problem.images + b) * width + d
            u1, u2, u3 = u0 + width, u0 + 2 * width, u0 + 3 * width
            p0, p1 = broadcast_at(inputs.poses, u0), broadcast_at(inputs.poses, u1)
            p2, p3 = broadcast_at(inputs.poses, u2), broadcast_at(inputs.poses, u3)
            g0, g1, g2, g3 = broadcast(ZERO), broadcast(ZERO), broadcast(ZERO), broadcast(ZERO)
            for e in range(0, row, LANES):
                at, weight = k * row + e, load(inputs.matrices, w + e)
                v0, v1 = load(votes, at), load(votes, at + stride)
                v2, v3 = load(votes, at + 2 * stride), load(votes, at + 3 * stride)
                g0, g1 = fma(v0, weight, g0), fma(v1, weight, g1)
                g2, g3 = fma(v2, weight, g2), fma(v3, weight, g3)
                slope = fma(p1, v1, fma(p0, v0, load(matrices, w + e)))
                store(matrices, w + e, fma(p3, v3, fma(p2, v2, slope)))
            poses[u0] += horizontal_sum(g0)
            poses[u1] += horizontal_sum(g1)
            poses[u2] += horizontal_sum(g2)
            poses[u3] += horizontal_sum(g3)


@kernel(_backward, _parts)
def backward_part(problem, inputs, sums, coefficients, gradients, part):
    """`backward` for one part of the children."""
    pairs, own = _pairs(problem), part * len(inputs.accumulated)
    for i in _children(problem, part):
        for b in range(0, problem.images, FOUR):
            _make_votes(problem, inputs, i, b, pairs.votes)
            _compare(problem, inputs, b, pairs)
            _to_votes(problem, inputs, sums, coefficients, i, b, pairs, gradients.accumulated, own)
            _to_inputs(problem, inputs, i, b, pairs.votes, gradients.poses, gradients.matrices)


def backward(problem, inputs, sums, coefficients):
    """Gradients, as `Inputs`, of poses, matrices and, by parts, of `accumulated`, from those of `forward`'s results."""
    gradients = Inputs(*(np.zeros(shape, f32) for shape in _backward(problem)[-1]))
    backward_part(problem, inputs, sums, coefficients, gradients)
    return gradients
