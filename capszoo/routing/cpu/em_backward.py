"""The analytic gradient of `em_forward`, with every vote made again where it is needed."""

import collections
import math

import numpy as np
from numba import njit

from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.em_forward import Inputs, fit_of, inputs_of
from capszoo.routing.cpu.entrance import kernel
from capszoo.routing.cpu.lanes import LANES, exp, fma, load, spread, store, total
from capszoo.routing.cpu.votes import (
    POSE,
    TILE,
    ZERO,
    chunk_of,
    chunks,
    gradient_shapes,
    make_votes,
    moments,
    parent_shapes,
    product_gradients,
    room,
    votes_at,
)

f32 = np.float32
HALF, ONE, TWO = f32(0.5), f32(1.0), f32(2.0)

# What goes backwards through one image: gradients of mean, variance and logits [P, K, ...]; what a share in the sums
# over children is worth, constant + sum_d (linear * (v - mean) + square * (v - mean)^2), [T, P, K, ...]; for each
# pair, [T, P, I, K, lanes], R * activation and the gradient of z; for each child, [C], the sum over its parents.
Sweep = collections.namedtuple("Sweep", "mean variance logits constant linear square share slope child")


@inner
def _worth(problem, fit, sweep, gradients, b, chunk, t):
    """From gradients of the parents of iteration t to those of the sums that made them."""
    positions, blocks = problem.child.shape[0], problem.blocks
    floor, smallest = spread(problem.mass_floor), spread(problem.variance_floor)
    for u in range(positions * blocks):
        s, q = (b * len(problem.scales) + t) * positions * blocks + u, t * positions * blocks + u
        n = load(fit.mass, s * LANES)
        logit = load(sweep.logits, u * LANES) * spread(problem.scales[t])
        cost = spread(ZERO) - logit * n
        k = (chunk * blocks + u % blocks) * LANES
        store(gradients.beta_a, k, load(gradients.beta_a, k) + logit)
        store(gradients.beta_u, k, fma(spread(f32(POSE)), cost, load(gradients.beta_u, k)))
        constant = spread(ZERO) - logit * load(fit.cost, s * LANES)
        for d in range(0, TILE, LANES):
            precision = load(fit.precision, s * TILE + d)
            square = fma(spread(HALF) * cost, precision, load(sweep.variance, u * TILE + d)) / n
            # The floor of the mass keeps deviations from adding up to zero.
            slack = spread(TWO) * floor * square * load(fit.mean, s * TILE + d)
            store(sweep.linear, q * TILE + d, (load(sweep.mean, u * TILE + d) - slack) / n)
            store(sweep.square, q * TILE + d, square)
            constant = constant - square * (spread(ONE) / precision - smallest)
        store(sweep.constant, q * LANES, constant)


@njit(inline="always")
def _value(sweep, q, d, deviation):
    """What one entry of a vote adds to the worth of a share."""
    slope = fma(load(sweep.square, q * TILE + d), deviation, load(sweep.linear, q * TILE + d))
    return deviation * slope


@inner
def _share_worth(problem, fit, sweep, votes, v, b, u, t):
    """The worth of a share in iteration t of parents u, and its z, for the votes at `v`."""
    parents = problem.child.shape[0] * problem.blocks
    q = t * parents + u
    s = (b * len(problem.scales) + t) * parents + u
    before = s - parents
    worth, distance = load(sweep.constant, q * LANES), spread(ZERO)
    for d in range(0, TILE, LANES):
        entry = load(votes, v + d)
        worth = worth + _value(sweep, q, d, entry - load(fit.mean, s * TILE + d))
        deviation = entry - load(fit.mean, before * TILE + d)
        distance = fma(deviation * deviation, load(fit.precision, before * TILE + d), distance)
    return worth, fma(spread(-HALF), distance, load(fit.base, before * LANES))


@inner
def _shares(problem, inputs, fit, sweep, votes, b, t):
    """R of iteration t again, what each is worth, and what each child's are worth together."""
    child, blocks = problem.child, problem.blocks
    positions, seen = child.shape
    e = (b * len(problem.scales) + t) * problem.children
    sweep.child[:] = ZERO
    for p in range(positions):
        v = votes_at(problem, inputs, b, p, votes)
        for i in range(seen):
            j, z = child[p, i], ((t * positions + p) * seen + i) * blocks
            for k in range(blocks):
                at = v + (i * blocks + k) * TILE
                worth, value = _share_worth(problem, fit, sweep, votes, at, b, p * blocks + k, t)
                coefficient = exp(value - spread(fit.evidence[e + j]))
                store(sweep.share, (z + k) * LANES, coefficient)
                store(sweep.slope, (z + k) * LANES, worth)
                sweep.child[j] += total(coefficient * worth)


@inner
def _previous(problem, inputs, fit, sweep, votes, b, t, first, second):
    """Through the E-step of iteration t to the parents of iteration t - 1."""
    child, blocks, activations = problem.child, problem.blocks, inputs.activations
    positions, seen = child.shape
    pairs = positions * seen * blocks * LANES
    share, slope = sweep.share[t * pairs : (t + 1) * pairs], sweep.slope[t * pairs : (t + 1) * pairs]
    for p in range(positions):
        v = votes_at(problem, inputs, b, p, votes)
        for k in range(blocks):
            u = p * blocks + k
            s = (b * len(problem.scales) + t - 1) * positions * blocks + u
            density = spread(ZERO)
            for i in range(seen):
                j, z = child[p, i], ((p * seen + i) * blocks + k) * LANES
                rho = load(share, z) * spread(activations[b * problem.children + j])
                store(share, z, rho)
                h = rho * (load(slope, z) - spread(sweep.child[j]))
                store(slope, z, h)
                density = density + h
            moments(problem, votes, v, p, k, slope, fit.mean, s * TILE, first, second)
            for d in range(0, TILE, LANES):
                precision = load(fit.precision, s * TILE + d)
                store(sweep.mean, u * TILE + d, load(first, d) * precision)
                curvature = load(second, d) * precision - density
                store(sweep.variance, u * TILE + d, spread(HALF) * precision * curvature)
            store(sweep.logits, u * LANES, density)
            for o in range(LANES):
                sweep.logits[u * LANES + o] /= ONE + math.exp(fit.logits[s * LANES + o])


@inner
def _vote_gradients(problem, fit, sweep, votes, v, b, u, z, tile):
    """Gradients of the votes at `v`, of all iterations, into `tile`; returns the worth of the share at first.

    The parents are those at u, the pair is the one at z.
    """
    positions, seen = problem.child.shape
    parents, pairs, count = positions * problem.blocks, positions * seen * problem.blocks, len(problem.scales)
    worth = load(sweep.constant, u * LANES)
    for d in range(0, TILE, LANES):
        entry, gradient = load(votes, v + d), spread(ZERO)
        for t in range(count):
            q = t * parents + u
            s = (b * count * parents + q) * TILE + d
            deviation = entry - load(fit.mean, s)
            if t == 0:
                worth = worth + _value(sweep, q, d, deviation)
            double = spread(TWO) * load(sweep.square, q * TILE + d)
            slope = fma(double, deviation, load(sweep.linear, q * TILE + d))
            gradient = fma(load(sweep.share, (t * pairs + z) * LANES), slope, gradient)
            if t + 1 < count:
                pull = load(sweep.slope, ((t + 1) * pairs + z) * LANES) * load(fit.precision, s)
                gradient = gradient - pull * deviation
        store(tile, d, gradient)
    return worth


@inner
def _inputs_gradients(problem, inputs, fit, sweep, gradients, votes, b, chunk, tile):
    """Through all M- and E-steps at once to poses and weights; and to the activations in iteration 0."""
    child, blocks, activations = problem.child, problem.blocks, inputs.activations
    positions, seen = child.shape
    for p in range(positions):
        v = votes_at(problem, inputs, b, p, votes)
        for i in range(seen):
            j = child[p, i]
            a = b * problem.children + j
            for k in range(blocks):
                z = (p * seen + i) * blocks + k
                store(sweep.share, z * LANES, spread(problem.uniform[p, i] * activations[a]))
                at = v + (i * blocks + k) * TILE
                worth = total(_vote_gradients(problem, fit, sweep, votes, at, b, p * blocks + k, z, tile))
                gradients.activations[a] += problem.uniform[p, i] * worth
                product_gradients(problem, inputs, gradients, b, chunk, j, problem.matrix[i], k, tile)


def _backward(problem):
    inputs = inputs_of(problem)
    return inputs, fit_of(problem), *parent_shapes(problem), gradient_shapes(problem, inputs)


@kernel(_backward, chunks)
def backward_chunk(problem, inputs, fit, mean, logits, gradients, chunk):
    """`backward` for the images of one chunk."""
    children, count = problem.children, len(problem.scales)
    parents = problem.child.shape[0] * problem.blocks * LANES
    sweep = _sweep(problem, parents, parents * problem.child.shape[1])
    tile, first, second = np.empty(TILE, f32), np.empty(TILE, f32), np.empty(TILE, f32)
    votes = room(problem)
    for b in chunk_of(problem, chunk):
        make_votes(problem, inputs, b, votes)
        sweep.mean[:] = mean[b * parents * POSE : (b + 1) * parents * POSE]
        sweep.variance[:] = ZERO
        sweep.logits[:] = logits[b * parents : (b + 1) * parents]
        for t in range(count - 1, 0, -1):
            _worth(problem, fit, sweep, gradients, b, chunk, t)
            _shares(problem, inputs, fit, sweep, votes, b, t)
            for j in range(children):
                gradients.activations[b * children + j] += sweep.child[j]
            _previous(problem, inputs, fit, sweep, votes, b, t, first, second)
        _worth(problem, fit, sweep, gradients, b, chunk, 0)
        _inputs_gradients(problem, inputs, fit, sweep, gradients, votes, b, chunk, tile)


def backward(problem, inputs, fit, mean, logits):
    """Gradients, as `Inputs`, of a loss whose gradients of the last means and logits are `mean` and `logits`.

    Those of all weights are by chunk.
    """
    gradients = Inputs(*(np.zeros(shape, f32) for shape in gradient_shapes(problem, inputs_of(problem))))
    backward_chunk(problem, inputs, fit, mean, logits, gradients)
    return gradients


@inner
def _sweep(problem, parents, pairs):
    count = len(problem.scales)
    return Sweep(
        np.empty(parents * POSE, f32),
        np.empty(parents * POSE, f32),
        np.empty(parents, f32),
        np.empty(count * parents, f32),
        np.empty(count * parents * POSE, f32),
        np.empty(count * parents * POSE, f32),
        np.empty(count * pairs, f32),
        np.empty(count * pairs, f32),
        np.empty(problem.children, f32),
    )
