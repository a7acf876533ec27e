"""EM routing from poses to parents, compiled for the CPU; see `votes` for the order of all arrays.

The equations are those of `capszoo.routing.em.EMRouting`; or, where a problem is `bayesian`, those of variational-Bayes
routing, which makes other parents of the same sums, see `posterior`. Where it has `groups`, coefficients sum to one for
every type of parent, see `by_type`. One thread routes one image after the other, whose coefficients stay in its cache.
"""

import collections
import math

import numpy as np

from capszoo.routing.cpu.by_type import normalise_by_type
from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.entrance import check_array, check_count, kernel
from capszoo.routing.cpu.lanes import (
    LANES,
    broadcast,
    exp,
    fma,
    horizontal_max,
    horizontal_sum,
    load,
    maximum,
    store,
)
from capszoo.routing.cpu.posterior import posterior
from capszoo.routing.cpu.votes import (
    INPUTS,
    POSE,
    PROBLEM,
    TILE,
    ZERO,
    check_problem,
    chunk_of,
    chunks,
    input_shapes,
    make_votes,
    moments,
    room,
    votes_at,
)

f32 = np.float32
# Log-density of what is no parent, or of no child's.
ABSENT = f32(-1e30)
# Moments are taken about the previous mean. Where the new one is so far away that the difference of moments is less
# than this share of them, they are taken again about the new one.
CANCELLATION = f32(1 / 8)
LOG_2_PI = math.log(2.0 * math.pi)
HALF, ONE = f32(0.5), f32(1.0)

# See `votes.PROBLEM`; uniform [P, I]: R of iteration 0; scales [T]: lambda_t; damping: the previous mean's share of a
# mean; groups: types of children, where coefficients sum to one for every type of parent, else 0.
Problem = collections.namedtuple(
    "Problem", f"{PROBLEM} uniform scales mass_floor variance_floor bayesian damping groups"
)
# See `votes.INPUTS`; beta_u and beta_a: [K, lanes].
Inputs = collections.namedtuple("Inputs", f"{INPUTS} beta_u beta_a")
# mean and precision (1 / var) [B, T, P, K, D, lanes]; mass (n), cost (sum_d beta_u + log(var) / 2), logits (x) and base
# (z at the mean) [B, T, P, K, lanes]; evidence [B, T, C, 1]: log of the sum of exp(z) over all parents of a child, or
# see `by_type`.
Fit = collections.namedtuple("Fit", "mean precision mass cost logits base evidence")


@inner
def _gaussians(problem, fit, s, centre, o, previous, q, first, second):
    """Mean and precision out of moments about `centre`; False where too much cancels."""
    mean, precision = fit.mean, fit.precision
    n, floor = load(fit.mass, s * LANES), broadcast(problem.mass_floor)
    smallest, cancelled = broadcast(problem.variance_floor), broadcast(ABSENT)
    for d in range(POSE):
        c, f, g = load(centre, o + d * LANES), load(first, d * LANES), load(second, d * LANES)
        # The mass has a floor, so the centre's own share of the mean is less than one.
        move = (f - floor * c) / n
        if problem.damping > ZERO:
            move = move + broadcast(problem.damping) * (load(previous, q + d * LANES) - c - move)
        variance = (g - move * (f + f - move * (n - floor))) / n + smallest
        store(mean, s * TILE + d * LANES, c + move)
        store(precision, s * TILE + d * LANES, broadcast(ONE) / variance)
        cancelled = maximum(cancelled, broadcast(CANCELLATION) * g / n - variance)
    return horizontal_max(cancelled) <= ZERO


@inner
def _activation(problem, inputs, fit, t, s, k):
    """The cost, the logit and the largest log-density of 16 parents."""
    precision, mass, cost, logits, base = fit.precision, fit.mass, fit.cost, fit.logits, fit.base
    for o in range(LANES):
        half_log, j, v = 0.0, k * LANES + o, s * LANES + o
        for d in range(0, POSE, 4):
            # Four at a time, whose product in float64 is never too small, not even of the smallest float32.
            q, four = s * TILE + d * LANES + o, 1.0
            for entry in range(q, q + 4 * LANES, LANES):
                four *= precision[entry]
            half_log -= 0.5 * math.log(four)
        cost[v] = POSE * inputs.beta_u[j] + half_log
        logits[v] = problem.scales[t] * (inputs.beta_a[j] - mass[v] * cost[v])
        log_activation = min(logits[v], ZERO) - math.log1p(math.exp(-abs(logits[v])))
        base[v] = log_activation - half_log - HALF * POSE * LOG_2_PI if j < problem.types else ABSENT


@inner
def _m_step(problem, inputs, fit, votes, b, t, share, factor, zeros, first, second):
    """Fits the parents of iteration t to share * factor * activation, which replaces `share`."""
    activations, child, blocks = inputs.activations, problem.child, problem.blocks
    positions, seen = child.shape
    mean, mass = fit.mean, fit.mass
    for p in range(positions):
        v = votes_at(problem, inputs, b, p, votes)
        for k in range(blocks):
            s = ((b * len(problem.scales) + t) * positions + p) * blocks + k
            n = broadcast(problem.mass_floor)
            for i in range(seen):
                z = ((p * seen + i) * blocks + k) * LANES
                rho = load(share, z) * broadcast(
                    factor[p, i] * activations[b * problem.children + child[p, i]]
                )
                store(share, z, rho)
                n = n + rho
            store(mass, s * LANES, n)
            centre, o = (zeros, 0) if t == 0 else (mean, (s - positions * blocks) * TILE)
            moments(problem, votes, v, p, k, share, centre, o, first, second)
            if not _gaussians(problem, fit, s, centre, o, centre, o, first, second):
                moments(problem, votes, v, p, k, share, mean, s * TILE, first, second)
                _gaussians(problem, fit, s, mean, s * TILE, centre, o, first, second)
            if not problem.bayesian:
                _activation(problem, inputs, fit, t, s, k)
        if problem.bayesian:
            posterior(problem, inputs, fit, ((b * len(problem.scales) + t) * positions + p) * blocks)


@inner
def _distance(votes, v, mean, precision, s):
    """sum_d (v - mean)^2 / var, for 16 types."""
    distance = broadcast(ZERO)
    for d in range(0, TILE, LANES):
        deviation = load(votes, v + d) - load(mean, s + d)
        distance = fma(deviation * deviation, load(precision, s + d), distance)
    return distance


@inner
def _e_step(problem, inputs, fit, votes, b, t, share, factor, peak):
    """Coefficients of iteration t, share * factor, from the parents of iteration t - 1."""
    child, blocks = problem.child, problem.blocks
    positions, seen = child.shape
    peak[:] = ABSENT
    for p in range(positions):
        v = votes_at(problem, inputs, b, p, votes)
        s = ((b * len(problem.scales) + t - 1) * positions + p) * blocks
        for i in range(seen):
            j, z = child[p, i], (p * seen + i) * blocks
            for k in range(blocks):
                at = v + (i * blocks + k) * TILE
                distance = _distance(votes, at, fit.mean, fit.precision, (s + k) * TILE)
                value = fma(broadcast(-HALF), distance, load(fit.base, (s + k) * LANES))
                store(share, (z + k) * LANES, value)
                if problem.groups == 0:
                    peak[j] = max(peak[j], horizontal_max(value))
    if problem.groups == 0:
        _normalise(problem, fit, b, t, share, factor, peak)
    else:
        factor[:] = ONE
        normalise_by_type(problem, fit, b, t, share)


@inner
def _normalise(problem, fit, b, t, share, factor, peak):
    """Of z in `share`: exp(z) / sum exp(z), over all parents of each child, as share * factor."""
    child, blocks, evidence = problem.child, problem.blocks, fit.evidence
    e = (b * len(problem.scales) + t) * problem.children
    evidence[e : e + problem.children] = ZERO
    for p in range(child.shape[0]):
        for i in range(child.shape[1]):
            j, z = child[p, i], (p * child.shape[1] + i) * blocks
            terms = broadcast(ZERO)
            for k in range(blocks):
                # Relative to the child's best parent, so that the largest term of its sum is one.
                term = exp(load(share, (z + k) * LANES) - broadcast(peak[j]))
                store(share, (z + k) * LANES, term)
                terms = terms + term
            evidence[e + j] += horizontal_sum(terms)
    for p in range(child.shape[0]):
        for i in range(child.shape[1]):
            factor[p, i] = ONE / evidence[e + child[p, i]]
    for j in range(problem.children):
        # What the strides leave over at the border is seen by no parent.
        evidence[e + j] = peak[j] + math.log(evidence[e + j]) if evidence[e + j] > ZERO else ZERO


def inputs_of(problem):
    """Shapes of the inputs of a problem that is as it should be."""
    check_problem(problem)
    check_array("uniform", problem.uniform, np.float32, problem.child.shape)
    check_array("scales", problem.scales, np.float32, np.shape(problem.scales)[:1] or (None,))
    check_count("iterations", len(problem.scales), 1)
    check_count("groups", problem.groups)
    if not 0 <= problem.damping < 1:
        raise ValueError(f"damping must be in [0, 1). Received: {problem.damping}")
    betas = (problem.blocks * LANES,)
    return Inputs(*input_shapes(problem), betas, betas)


def fit_of(problem):
    """Shapes of a `Fit`."""
    steps = problem.images, len(problem.scales)
    parents = *steps, problem.child.shape[0], problem.blocks
    poses, numbers = (*parents, POSE, LANES), (*parents, LANES)
    # By type there is a number for each, and then the peaks of all groups of children.
    rows = problem.children + problem.groups
    width = problem.blocks * LANES if problem.groups else 1
    return Fit(poses, poses, numbers, numbers, numbers, numbers, (*steps, rows, width))


def _forward(problem):
    return inputs_of(problem), fit_of(problem)


@kernel(_forward, chunks)
def forward_chunk(problem, inputs, fit, chunk):
    """Routes the images of one chunk."""
    positions, seen = problem.child.shape
    share = np.empty(positions * seen * problem.blocks * LANES, f32)
    factor, peak = np.empty((positions, seen), f32), np.empty(problem.children, f32)
    first, second, zeros = np.empty(TILE, f32), np.empty(TILE, f32), np.zeros(TILE, f32)
    votes = room(problem)
    for b in chunk_of(problem, chunk):
        make_votes(problem, inputs, b, votes)
        _start(problem, share, factor)
        _m_step(problem, inputs, fit, votes, b, 0, share, factor, zeros, first, second)
        for t in range(1, len(problem.scales)):
            _e_step(problem, inputs, fit, votes, b, t, share, factor, peak)
            _m_step(problem, inputs, fit, votes, b, t, share, factor, zeros, first, second)


@inner
def _start(problem, share, factor):
    """Coefficients of iteration 0."""
    factor[:] = problem.uniform
    types = problem.blocks * LANES
    for j in range(share.shape[0]):
        share[j] = ONE if j % types < problem.types else ZERO
