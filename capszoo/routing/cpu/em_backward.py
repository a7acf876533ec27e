"""The analytic gradient of `em_forward`, with every vote made again where it is needed.

Symbols as in `capszoo.routing.em.EMRouting` (Hinton et al. 2018, Procedure 1); d y is the gradient of the loss by y.
The shares of iteration t are rho_ij = R_ij a_i, and floors are n_0 (of n_j) and v_0 (of var_j).

M-STEP, lines 3 to 6, with the cost h_j = D beta_u + sum_d log(var_jd) / 2 and x_j = lambda (beta_a - n_j h_j):

    d beta_a += lambda d x_j                   d h_j = -lambda n_j d x_j                d beta_u += D d h_j
    square_jd = (d var_jd + d h_j / (2 var_jd)) / n_j                  # var = sum rho (V - mu)^2 / n + v_0
    linear_jd = (d mu_jd - 2 n_0 square_jd mu_jd) / n_j                # mu = sum rho V / n
    constant_j = -lambda h_j d x_j - sum_d square_jd (var_jd - v_0)    # n = sum rho + n_0
    d rho_ij = constant_j + sum_d (linear_jd (V_ijd - mu_jd) + square_jd (V_ijd - mu_jd)^2)
    d V_ijd += rho_ij (linear_jd + 2 square_jd (V_ijd - mu_jd))

The term with n_0 is there because sum_i rho_ij (V_ij - mu_j) = n_0 mu_j: with a floor deviations do not add up to zero.
Then rho = R a, and the softmax of E-STEP, line 3, over all parents k of a child:

    d a_i += sum_k R_ik d rho_ik
    d z_ij = rho_ij (d rho_ij - sum_k R_ik d rho_ik)

and z_ij = log(a_j) - sum_d (log(2 pi var_jd) + (V_ijd - mu_jd)^2 / var_jd) / 2, line 2, leads to iteration t - 1:

    d mu_jd = sum_i d z_ij (V_ijd - mu_jd) / var_jd
    d var_jd = (sum_i d z_ij (V_ijd - mu_jd)^2 / var_jd - sum_i d z_ij) / (2 var_jd)
    d x_j = sum_i d z_ij / (1 + exp(x_j))                                               # d log(a) / d x = 1 - a
    d V_ijd -= d z_ij (V_ijd - mu_jd) / var_jd

With a damping c, mu' = (1 - c) mu + c mu_0 takes the place of mu_j, mu_0 being the previous mean, so that deviations
from it add up to e_jd = sum_i rho_ij (V_ijd - mu'_jd) = n_j c / (1 - c) (mu'_jd - mu_0jd) + n_0 mu'_jd, and

    linear_jd = (1 - c) (d mu'_jd - 2 square_jd e_jd) / n_j,          d mu_0jd += c (d mu'_jd - 2 square_jd e_jd)
    constant_j += -sum_d linear_jd c / (1 - c) (mu'_jd - mu_0jd)

R of iteration 0 is given, so that nothing leads from it. V = M W leads to poses and weights, `votes.product_gradients`.
Of variational-Bayes routing the M-step is another, see `posterior`, and d x_j above is sum_i d z_ij. Where coefficients
sum to one for every type, the sums over k above are over positions, see `by_type`.
"""

import collections
import math

import numpy as np
from numba import njit

from capszoo.routing.cpu.by_type import coefficient_by_type, find_peak, through_peaks
from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.em_forward import fit_of, inputs_of
from capszoo.routing.cpu.entrance import kernel
from capszoo.routing.cpu.lanes import LANES, broadcast, exp, fma, horizontal_sum, load, store
from capszoo.routing.cpu.posterior import through_posterior
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

# What goes backwards through one image: gradients of mean, variance and logits [P, K, ...]; terms of the gradient of
# a share, constant + sum_d (linear * (v - mean) + square * (v - mean)^2), [T, P, K, ...]; for each
# pair, [T, P, I, K, lanes], R * activation and the gradient of z; for each child, [C], the sum over its parents, or by
# types [C, K, lanes], and where the peaks are, [G, K, lanes].
Sweep = collections.namedtuple("Sweep", "mean variance logits constant linear square share d_z child top")


@inner
def _through_m_step(problem, fit, sweep, gradients, b, chunk, t):
    """From gradients of the parents of iteration t to those of the sums that made them."""
    if problem.bayesian:
        through_posterior(problem, fit, sweep, gradients, b, chunk, t)
        sweep.mean[:] = ZERO
        return
    positions, blocks = problem.child.shape[0], problem.blocks
    floor, smallest = broadcast(problem.mass_floor), broadcast(problem.variance_floor)
    damping = broadcast(problem.damping)
    for u in range(positions * blocks):
        s, q = (b * len(problem.scales) + t) * positions * blocks + u, t * positions * blocks + u
        n = load(fit.mass, s * LANES)
        logit = load(sweep.logits, u * LANES) * broadcast(problem.scales[t])
        cost = broadcast(ZERO) - logit * n
        k = (chunk * blocks + u % blocks) * LANES
        store(gradients.beta_a, k, load(gradients.beta_a, k) + logit)
        store(gradients.beta_u, k, fma(broadcast(f32(POSE)), cost, load(gradients.beta_u, k)))
        constant = broadcast(ZERO) - logit * load(fit.cost, s * LANES)
        for d in range(0, TILE, LANES):
            precision = load(fit.precision, s * TILE + d)
            square = fma(broadcast(HALF) * cost, precision, load(sweep.variance, u * TILE + d)) / n
            mean = load(fit.mean, s * TILE + d)
            # The floor of the mass keeps deviations from adding up to zero, and so does damping.
            rest, away = floor * mean, broadcast(ZERO)
            if problem.damping > ZERO:
                away = mean if t == 0 else mean - load(fit.mean, (s - positions * blocks) * TILE + d)
                away = damping / (broadcast(ONE) - damping) * away
                rest = fma(n, away, rest)
            d_mean = load(sweep.mean, u * TILE + d) - broadcast(TWO) * square * rest
            linear = (broadcast(ONE) - damping) * d_mean / n
            # To the previous mean, see `_previous`.
            store(sweep.mean, u * TILE + d, damping * d_mean)
            store(sweep.linear, q * TILE + d, linear)
            store(sweep.square, q * TILE + d, square)
            constant = constant - square * (broadcast(ONE) / precision - smallest) - linear * away
        store(sweep.constant, q * LANES, constant)


@njit(inline="always")
def _value(sweep, q, d, deviation):
    """What one entry of a vote adds to the gradient of its share."""
    slope = fma(load(sweep.square, q * TILE + d), deviation, load(sweep.linear, q * TILE + d))
    return deviation * slope


@inner
def _d_share(problem, fit, sweep, votes, v, b, u, t):
    """The gradient of a share in iteration t of parents u, and its z, for the votes at `v`."""
    parents = problem.child.shape[0] * problem.blocks
    q = t * parents + u
    s = (b * len(problem.scales) + t) * parents + u
    before = s - parents
    d_share, distance = load(sweep.constant, q * LANES), broadcast(ZERO)
    for d in range(0, TILE, LANES):
        entry = load(votes, v + d)
        d_share = d_share + _value(sweep, q, d, entry - load(fit.mean, s * TILE + d))
        deviation = entry - load(fit.mean, before * TILE + d)
        distance = fma(deviation * deviation, load(fit.precision, before * TILE + d), distance)
    return d_share, fma(broadcast(-HALF), distance, load(fit.base, before * LANES))


@inner
def _shares(problem, inputs, fit, sweep, votes, b, t):
    """R of iteration t again, the gradients of the shares, and for each child their mean under R."""
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
                d_share, value = _d_share(problem, fit, sweep, votes, at, b, p * blocks + k, t)
                store(sweep.d_z, (z + k) * LANES, d_share)
                if problem.groups == 0:
                    coefficient = exp(value - broadcast(fit.evidence[e + j]))
                    sweep.child[j] += horizontal_sum(coefficient * d_share)
                else:
                    coefficient = coefficient_by_type(problem, fit, b, t, j, k, value)
                    find_peak(problem, fit, b, t, j, k, value, z, sweep.top)
                    at = (j * blocks + k) * LANES
                    store(sweep.child, at, fma(coefficient, d_share, load(sweep.child, at)))
                store(sweep.share, (z + k) * LANES, coefficient)


@inner
def _through_coefficients(problem, inputs, fit, sweep, b, t, share, d_z):
    """Of R in `share` and of its gradients in `d_z`: rho, and the gradients of z."""
    child, blocks = problem.child, problem.blocks
    for p in range(child.shape[0]):
        for i in range(child.shape[1]):
            j, z = child[p, i], (p * child.shape[1] + i) * blocks * LANES
            activation = broadcast(inputs.activations[b * problem.children + j])
            for k in range(0, blocks * LANES, LANES):
                rho = load(share, z + k) * activation
                store(share, z + k, rho)
                mean = (
                    load(sweep.child, j * blocks * LANES + k) if problem.groups else broadcast(sweep.child[j])
                )
                store(d_z, z + k, rho * (load(d_z, z + k) - mean))
    if problem.groups > 0:
        through_peaks(problem, inputs, fit, b, t, sweep.child, sweep.top, sweep.d_z)


@inner
def _previous(problem, inputs, fit, sweep, votes, b, t, first, second):
    """Through the E-step of iteration t to the parents of iteration t - 1."""
    child, blocks = problem.child, problem.blocks
    positions, seen = child.shape
    pairs = positions * seen * blocks * LANES
    share, d_z = sweep.share[t * pairs : (t + 1) * pairs], sweep.d_z[t * pairs : (t + 1) * pairs]
    _through_coefficients(problem, inputs, fit, sweep, b, t, share, d_z)
    for p in range(positions):
        v = votes_at(problem, inputs, b, p, votes)
        for k in range(blocks):
            u = p * blocks + k
            s = (b * len(problem.scales) + t - 1) * positions * blocks + u
            density = broadcast(ZERO)
            for i in range(seen):
                density = density + load(d_z, ((p * seen + i) * blocks + k) * LANES)
            moments(problem, votes, v, p, k, d_z, fit.mean, s * TILE, first, second)
            for d in range(0, TILE, LANES):
                precision = load(fit.precision, s * TILE + d)
                # What damping has left there; else zero.
                damped = load(sweep.mean, u * TILE + d)
                store(sweep.mean, u * TILE + d, fma(load(first, d), precision, damped))
                curvature = load(second, d) * precision - density
                store(sweep.variance, u * TILE + d, broadcast(HALF) * precision * curvature)
            store(sweep.logits, u * LANES, density)
            for o in range(0 if problem.bayesian else LANES):
                sweep.logits[u * LANES + o] /= ONE + math.exp(fit.logits[s * LANES + o])


@inner
def _vote_gradients(problem, fit, sweep, votes, v, b, u, z, tile):
    """Gradients of the votes at `v`, of all iterations, into `tile`; returns the gradient of the share of iteration 0.

    The parents are those at u, the pair is the one at z.
    """
    positions, seen = problem.child.shape
    parents, pairs, count = positions * problem.blocks, positions * seen * problem.blocks, len(problem.scales)
    d_share = load(sweep.constant, u * LANES)
    for d in range(0, TILE, LANES):
        entry, gradient = load(votes, v + d), broadcast(ZERO)
        for t in range(count):
            q = t * parents + u
            s = (b * count * parents + q) * TILE + d
            deviation = entry - load(fit.mean, s)
            if t == 0:
                d_share = d_share + _value(sweep, q, d, deviation)
            double = broadcast(TWO) * load(sweep.square, q * TILE + d)
            slope = fma(double, deviation, load(sweep.linear, q * TILE + d))
            gradient = fma(load(sweep.share, (t * pairs + z) * LANES), slope, gradient)
            if t + 1 < count:
                d_deviation = load(sweep.d_z, ((t + 1) * pairs + z) * LANES) * load(fit.precision, s)
                gradient = gradient - d_deviation * deviation
        store(tile, d, gradient)
    return d_share


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
                store(sweep.share, z * LANES, broadcast(problem.uniform[p, i] * activations[a]))
                at = v + (i * blocks + k) * TILE
                d_share = horizontal_sum(
                    _vote_gradients(problem, fit, sweep, votes, at, b, p * blocks + k, z, tile)
                )
                gradients.activations[a] += problem.uniform[p, i] * d_share
                product_gradients(problem, inputs, gradients, b, chunk, j, problem.matrix[i], k, tile)


def _backward(problem):
    inputs = inputs_of(problem)
    return inputs, fit_of(problem), *parent_shapes(problem), gradient_shapes(problem, inputs)


@kernel(_backward, chunks)
def backward_chunk(problem, inputs, fit, mean, logits, gradients, chunk):
    """Gradients of a loss whose gradients of the last means and logits are `mean` and `logits`, for one chunk."""
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
            _through_m_step(problem, fit, sweep, gradients, b, chunk, t)
            _shares(problem, inputs, fit, sweep, votes, b, t)
            width = len(sweep.child) // children
            for j in range(children * width):
                gradients.activations[b * children + j // width] += sweep.child[j]
            _previous(problem, inputs, fit, sweep, votes, b, t, first, second)
        _through_m_step(problem, fit, sweep, gradients, b, chunk, 0)
        _inputs_gradients(problem, inputs, fit, sweep, gradients, votes, b, chunk, tile)


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
        np.empty(problem.children * (problem.blocks * LANES if problem.groups else 1), f32),
        np.zeros(problem.groups * problem.blocks * LANES, np.int64),
    )
