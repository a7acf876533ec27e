"""EM routing from poses to parents, compiled for the CPU: votes are made where they are used and never stored.

The equations are those of `capszoo.routing.em.EMRouting`, variant "paper", with votes V = M W + addition of 4x4
matrices; `backward` is their analytic gradient. Arrays are flat; their axes are, from the slowest,

    B images, T iterations, P positions of parents, I children seen from one position, C children of an image,
    K blocks of 16 types of parents (the lanes; the last block may have padding), D = 16 entries of a pose,
    Q = 16 entries of a transformation, listed row by row as the pose is.

One thread routes one image after the other, whose coefficients stay in its cache.
"""

import collections
import math

import numpy as np
from numba import njit, prange

from capszoo.routing.fused.lanes import (
    LANES,
    exp,
    fma,
    highest,
    load,
    maximum,
    spread,
    spread_at,
    store,
    total,
)

f32 = np.float32
POSE = 16
TILE = POSE * LANES
# Images that a thread takes at once. Gradients of weights are summed by chunks, so that they do not depend on the
# number of threads.
CHUNK = 4
# Log-density of what is no parent, or of no child's.
ABSENT = f32(-1e30)
# Moments are taken about the previous mean. Where the new one is so far away that the difference of moments is less
# than this share of them, they are taken again about the new one.
CANCELLATION = f32(1 / 64)
LOG_2_PI = math.log(2.0 * math.pi)
ZERO, HALF, ONE, TWO = f32(0.0), f32(0.5), f32(1.0), f32(2.0)

# child [P, I]: number of a child in its image; matrix [I]: number of its transformation; addition [I, D];
# uniform [P, I]: R of iteration 0; scales [T]: lambda_t; children: C; blocks: K; types: of parents, without padding.
Problem = collections.namedtuple(
    "Problem", "child matrix addition uniform scales children blocks types mass_floor variance_floor"
)
# poses [B, C, D], activations [B, C], weights [transformations, K, Q, lanes], beta_u and beta_a [K, lanes].
Inputs = collections.namedtuple("Inputs", "poses activations weights beta_u beta_a")
# mean and precision (1 / var) [B, T, P, K, D, lanes]; mass (n), cost (sum_d beta_u + log(var) / 2), logits (x) and base
# (z at the mean) [B, T, P, K, lanes]; evidence [B, T, C]: log of the sum of exp(z) over all parents of a child.
Fit = collections.namedtuple("Fit", "mean precision mass cost logits base evidence")
# Gradients of `Inputs`; those of weights, beta_u and beta_a by chunk.
Gradients = collections.namedtuple("Gradients", "poses activations weights beta_u beta_a")


@njit(inline="always")
def _row(poses, m):
    """A row of a pose, each entry in all lanes."""
    return spread_at(poses, m), spread_at(poses, m + 1), spread_at(poses, m + 2), spread_at(poses, m + 3)


@njit(inline="always")
def _vote(row, start, weights, w):
    """One entry of the votes for 16 types: `start` plus the row times the column at `w`."""
    vote = fma(row[0], load(weights, w), start)
    vote = fma(row[1], load(weights, w + 4 * LANES), vote)
    vote = fma(row[2], load(weights, w + 8 * LANES), vote)
    return fma(row[3], load(weights, w + 12 * LANES), vote)


@njit(inline="always")
def _add_moments(row, start, weights, w, coefficient, first, second):
    deviation = _vote(row, start, weights, w)
    weighted = coefficient * deviation
    return first + weighted, fma(weighted, deviation, second)


@njit(error_model="numpy")
def _moments(problem, inputs, b, p, k, coefficients, centre, s, first, second):
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
            row = _row(poses, (b * problem.children + child[p, i]) * POSE + 4 * r)
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
def _gaussians(problem, fit, s, centre, o, first, second):
    """Mean and precision out of moments about `centre`; False where too much cancels."""
    mean, precision = fit.mean, fit.precision
    n, floor = load(fit.mass, s * LANES), spread(problem.mass_floor)
    smallest, cancelled = spread(problem.variance_floor), spread(ABSENT)
    for d in range(POSE):
        c, f, g = load(centre, o + d * LANES), load(first, d * LANES), load(second, d * LANES)
        # The mass has a floor, so the centre's own share of the mean is less than one.
        move = (f - floor * c) / n
        variance = (g - move * (f + f - move * (n - floor))) / n + smallest
        store(mean, s * TILE + d * LANES, c + move)
        store(precision, s * TILE + d * LANES, spread(ONE) / variance)
        cancelled = maximum(cancelled, spread(CANCELLATION) * g / n - variance)
    return highest(cancelled) <= ZERO


@njit(error_model="numpy")
def _activation(problem, inputs, fit, t, s, k):
    """The cost, the logit and the largest log-density of 16 parents."""
    precision, mass, cost, logits, base = fit.precision, fit.mass, fit.cost, fit.logits, fit.base
    for o in range(LANES):
        volume, j, v = 1.0, k * LANES + o, s * LANES + o
        for d in range(POSE):
            volume *= precision[s * TILE + d * LANES + o]
        half_log = -0.5 * math.log(volume)
        cost[v] = POSE * inputs.beta_u[j] + half_log
        logits[v] = problem.scales[t] * (inputs.beta_a[j] - mass[v] * cost[v])
        log_activation = min(logits[v], ZERO) - math.log1p(math.exp(-abs(logits[v])))
        base[v] = log_activation - half_log - HALF * POSE * LOG_2_PI if j < problem.types else ABSENT


@njit(error_model="numpy")
def _m_step(problem, inputs, fit, b, t, share, factor, zeros, first, second):
    """Fits the parents of iteration t to share * factor * activation, which replaces `share`."""
    activations, child, blocks = inputs.activations, problem.child, problem.blocks
    positions, seen = child.shape
    mean, mass = fit.mean, fit.mass
    for p in range(positions):
        for k in range(blocks):
            s = ((b * len(problem.scales) + t) * positions + p) * blocks + k
            n = spread(problem.mass_floor)
            for i in range(seen):
                z = ((p * seen + i) * blocks + k) * LANES
                rho = load(share, z) * spread(factor[p, i] * activations[b * problem.children + child[p, i]])
                store(share, z, rho)
                n = n + rho
            store(mass, s * LANES, n)
            centre, o = (zeros, 0) if t == 0 else (mean, (s - positions * blocks) * TILE)
            _moments(problem, inputs, b, p, k, share, centre, o, first, second)
            if not _gaussians(problem, fit, s, centre, o, first, second):
                _moments(problem, inputs, b, p, k, share, mean, s * TILE, first, second)
                _gaussians(problem, fit, s, mean, s * TILE, first, second)
            _activation(problem, inputs, fit, t, s, k)


@njit(error_model="numpy")
def _distance(poses, m, weights, w, addition, a, mean, precision, s):
    """sum_d (v - mean)^2 / var, for 16 types."""
    distance = spread(ZERO)
    for r in range(4):
        row = _row(poses, m + 4 * r)
        for c in range(4):
            d = 4 * r + c
            deviation = _vote(row, spread_at(addition, a + d), weights, w + c * LANES)
            deviation = deviation - load(mean, s + d * LANES)
            distance = fma(deviation * deviation, load(precision, s + d * LANES), distance)
    return distance


@njit(error_model="numpy")
def _e_step(problem, inputs, fit, b, t, share, factor, peak):
    """Coefficients of iteration t, share * factor, from the parents of iteration t - 1."""
    child, matrix, blocks, children = problem.child, problem.matrix, problem.blocks, problem.children
    positions, seen = child.shape
    peak[:] = ABSENT
    for p in range(positions):
        s = ((b * len(problem.scales) + t - 1) * positions + p) * blocks
        for i in range(seen):
            j, z = child[p, i], (p * seen + i) * blocks
            for k in range(blocks):
                distance = _distance(
                    inputs.poses,
                    (b * children + j) * POSE,
                    inputs.weights,
                    (matrix[i] * blocks + k) * TILE,
                    problem.addition,
                    i * POSE,
                    fit.mean,
                    fit.precision,
                    (s + k) * TILE,
                )
                value = fma(spread(-HALF), distance, load(fit.base, (s + k) * LANES))
                store(share, (z + k) * LANES, value)
                peak[j] = max(peak[j], highest(value))
    _normalise(problem, fit, b, t, share, factor, peak)


@njit(error_model="numpy")
def _normalise(problem, fit, b, t, share, factor, peak):
    """Of z in `share`: exp(z) / sum exp(z), over all parents of each child, as share * factor."""
    child, blocks, evidence = problem.child, problem.blocks, fit.evidence
    e = (b * len(problem.scales) + t) * problem.children
    evidence[e : e + problem.children] = ZERO
    for p in range(child.shape[0]):
        for i in range(child.shape[1]):
            j, z = child[p, i], (p * child.shape[1] + i) * blocks
            terms = spread(ZERO)
            for k in range(blocks):
                # Relative to the child's best parent, so that the largest term of its sum is one.
                term = exp(load(share, (z + k) * LANES) - spread(peak[j]))
                store(share, (z + k) * LANES, term)
                terms = terms + term
            evidence[e + j] += total(terms)
    for p in range(child.shape[0]):
        for i in range(child.shape[1]):
            factor[p, i] = ONE / evidence[e + child[p, i]]
    for j in range(problem.children):
        # What the strides leave over at the border is seen by no parent.
        evidence[e + j] = peak[j] + math.log(evidence[e + j]) if evidence[e + j] > ZERO else ZERO


@njit(parallel=True, error_model="numpy", cache=True)
def forward(problem, inputs, images):
    """Routes `images` images; returns their `Fit`."""
    positions, children, count = problem.child.shape[0], problem.children, len(problem.scales)
    parents = positions * problem.blocks * LANES
    mean, precision = (
        np.empty(images * count * parents * POSE, f32),
        np.empty(images * count * parents * POSE, f32),
    )
    mass, cost = np.empty(images * count * parents, f32), np.empty(images * count * parents, f32)
    logits, base = np.empty(images * count * parents, f32), np.empty(images * count * parents, f32)
    fit = Fit(mean, precision, mass, cost, logits, base, np.zeros(images * count * children, f32))
    for chunk in prange((images + CHUNK - 1) // CHUNK):
        _forward_chunk(problem, inputs, fit, chunk * CHUNK, min(images, (chunk + 1) * CHUNK))
    return fit


@njit(error_model="numpy")
def _forward_chunk(problem, inputs, fit, begin, end):
    positions, seen = problem.child.shape
    share = np.empty(positions * seen * problem.blocks * LANES, f32)
    factor, peak = np.empty((positions, seen), f32), np.empty(problem.children, f32)
    first, second, zeros = np.empty(TILE, f32), np.empty(TILE, f32), np.zeros(TILE, f32)
    for b in range(begin, end):
        _start(problem, share, factor)
        _m_step(problem, inputs, fit, b, 0, share, factor, zeros, first, second)
        for t in range(1, len(problem.scales)):
            _e_step(problem, inputs, fit, b, t, share, factor, peak)
            _m_step(problem, inputs, fit, b, t, share, factor, zeros, first, second)


@njit(error_model="numpy")
def _start(problem, share, factor):
    """Coefficients of iteration 0."""
    factor[:] = problem.uniform
    types = problem.blocks * LANES
    for j in range(share.shape[0]):
        share[j] = ONE if j % types < problem.types else ZERO


# What goes backwards through one image: gradients of mean, variance and logits [P, K, ...]; what a share in the sums
# over children is worth, constant + sum_d (linear * (v - mean) + square * (v - mean)^2), [T, P, K, ...]; for each
# pair, [T, P, I, K, lanes], R * activation and the gradient of z; for each child, [C], the sum over its parents.
Sweep = collections.namedtuple("Sweep", "mean variance logits constant linear square share slope child")


@njit(error_model="numpy")
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


@njit(error_model="numpy")
def _share_worth(problem, inputs, fit, sweep, b, p, i, k, t):
    """The worth of the pair's share in iteration t, and its z, from the same votes."""
    positions, blocks = problem.child.shape[0], problem.blocks
    m, w = (b * problem.children + problem.child[p, i]) * POSE, (problem.matrix[i] * blocks + k) * TILE
    q = (t * positions + p) * blocks + k
    s = (b * len(problem.scales) + t) * positions * blocks + p * blocks + k
    before = s - positions * blocks
    worth, distance = load(sweep.constant, q * LANES), spread(ZERO)
    for r in range(4):
        row = _row(inputs.poses, m + 4 * r)
        for c in range(4):
            d = (4 * r + c) * LANES
            vote = _vote(
                row, spread_at(problem.addition, i * POSE + 4 * r + c), inputs.weights, w + c * LANES
            )
            worth = worth + _value(sweep, q, d, vote - load(fit.mean, s * TILE + d))
            deviation = vote - load(fit.mean, before * TILE + d)
            distance = fma(deviation * deviation, load(fit.precision, before * TILE + d), distance)
    return worth, fma(spread(-HALF), distance, load(fit.base, before * LANES))


@njit(error_model="numpy")
def _shares(problem, inputs, fit, sweep, b, t):
    """R of iteration t again, what each is worth, and what each child's are worth together."""
    child, blocks = problem.child, problem.blocks
    positions, seen = child.shape
    e = (b * len(problem.scales) + t) * problem.children
    sweep.child[:] = ZERO
    for p in range(positions):
        for i in range(seen):
            j, z = child[p, i], ((t * positions + p) * seen + i) * blocks
            for k in range(blocks):
                worth, value = _share_worth(problem, inputs, fit, sweep, b, p, i, k, t)
                coefficient = exp(value - spread(fit.evidence[e + j]))
                store(sweep.share, (z + k) * LANES, coefficient)
                store(sweep.slope, (z + k) * LANES, worth)
                sweep.child[j] += total(coefficient * worth)


@njit(error_model="numpy")
def _previous(problem, inputs, fit, sweep, b, t, first, second):
    """Through the E-step of iteration t to the parents of iteration t - 1."""
    child, blocks, activations = problem.child, problem.blocks, inputs.activations
    positions, seen = child.shape
    pairs = positions * seen * blocks * LANES
    share, slope = sweep.share[t * pairs : (t + 1) * pairs], sweep.slope[t * pairs : (t + 1) * pairs]
    for p in range(positions):
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
            _moments(problem, inputs, b, p, k, slope, fit.mean, s * TILE, first, second)
            for d in range(0, TILE, LANES):
                precision = load(fit.precision, s * TILE + d)
                store(sweep.mean, u * TILE + d, load(first, d) * precision)
                curvature = load(second, d) * precision - density
                store(sweep.variance, u * TILE + d, spread(HALF) * precision * curvature)
            store(sweep.logits, u * LANES, density)
            for o in range(LANES):
                sweep.logits[u * LANES + o] /= ONE + math.exp(fit.logits[s * LANES + o])


@njit(error_model="numpy")
def _vote_gradients(problem, inputs, fit, sweep, b, p, i, k, tile):
    """Gradients of the pair's votes, of all iterations, into `tile`; returns the worth of its share at first."""
    positions, seen = problem.child.shape
    blocks, count = problem.blocks, len(problem.scales)
    m, w = (b * problem.children + problem.child[p, i]) * POSE, (problem.matrix[i] * blocks + k) * TILE
    u, z, step = p * blocks + k, ((p * seen + i) * blocks + k) * LANES, positions * seen * blocks * LANES
    worth = load(sweep.constant, u * LANES)
    for r in range(4):
        row = _row(inputs.poses, m + 4 * r)
        for c in range(4):
            d = (4 * r + c) * LANES
            vote = _vote(
                row, spread_at(problem.addition, i * POSE + 4 * r + c), inputs.weights, w + c * LANES
            )
            gradient = spread(ZERO)
            for t in range(count):
                q = t * positions * blocks + u
                s = (b * count * positions * blocks + q) * TILE + d
                deviation = vote - load(fit.mean, s)
                if t == 0:
                    worth = worth + _value(sweep, q, d, deviation)
                slope = fma(
                    spread(TWO) * load(sweep.square, q * TILE + d),
                    deviation,
                    load(sweep.linear, q * TILE + d),
                )
                gradient = fma(load(sweep.share, z + t * step), slope, gradient)
                if t + 1 < count:
                    pull = load(sweep.slope, z + (t + 1) * step) * load(fit.precision, s)
                    gradient = gradient - pull * deviation
            store(tile, d, gradient)
    return worth


@njit(error_model="numpy")
def _product_gradients(problem, inputs, gradients, b, chunk, j, matrix, k, tile):
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


@njit(error_model="numpy")
def _inputs_gradients(problem, inputs, fit, sweep, gradients, b, chunk, tile):
    """Through all M- and E-steps at once to poses and weights; and to the activations in iteration 0."""
    child, blocks, activations = problem.child, problem.blocks, inputs.activations
    positions, seen = child.shape
    for p in range(positions):
        for i in range(seen):
            j = child[p, i]
            a = b * problem.children + j
            for k in range(blocks):
                z = ((p * seen + i) * blocks + k) * LANES
                store(sweep.share, z, spread(problem.uniform[p, i] * activations[a]))
                worth = total(_vote_gradients(problem, inputs, fit, sweep, b, p, i, k, tile))
                gradients.activations[a] += problem.uniform[p, i] * worth
                _product_gradients(problem, inputs, gradients, b, chunk, j, problem.matrix[i], k, tile)


@njit(parallel=True, error_model="numpy", cache=True)
def backward(problem, inputs, fit, mean, logits, images):
    """`Gradients` of a loss whose gradients of the last iteration are `mean` [B, P, K, D, lanes] and `logits`."""
    chunks = (images + CHUNK - 1) // CHUNK
    gradients = Gradients(
        np.zeros_like(inputs.poses),
        np.zeros_like(inputs.activations),
        np.zeros(chunks * inputs.weights.shape[0], f32),
        np.zeros(chunks * inputs.beta_u.shape[0], f32),
        np.zeros(chunks * inputs.beta_a.shape[0], f32),
    )
    for chunk in prange(chunks):
        _backward_chunk(
            problem, inputs, fit, mean, logits, gradients, chunk, min(images, (chunk + 1) * CHUNK)
        )
    return gradients


@njit(error_model="numpy")
def _backward_chunk(problem, inputs, fit, mean, logits, gradients, chunk, end):
    children, count = problem.children, len(problem.scales)
    parents = problem.child.shape[0] * problem.blocks * LANES
    sweep = _sweep(problem, parents, parents * problem.child.shape[1])
    tile, first, second = np.empty(TILE, f32), np.empty(TILE, f32), np.empty(TILE, f32)
    for b in range(chunk * CHUNK, end):
        sweep.mean[:] = mean[b * parents * POSE : (b + 1) * parents * POSE]
        sweep.variance[:] = ZERO
        sweep.logits[:] = logits[b * parents : (b + 1) * parents]
        for t in range(count - 1, 0, -1):
            _worth(problem, fit, sweep, gradients, b, chunk, t)
            _shares(problem, inputs, fit, sweep, b, t)
            for j in range(children):
                gradients.activations[b * children + j] += sweep.child[j]
            _previous(problem, inputs, fit, sweep, b, t, first, second)
        _worth(problem, fit, sweep, gradients, b, chunk, 0)
        _inputs_gradients(problem, inputs, fit, sweep, gradients, b, chunk, tile)


@njit(error_model="numpy")
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
