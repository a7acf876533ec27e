"""Similarity-learning routing from poses to parents, compiled for the CPU; see `votes` for the order of all arrays.

The equations are those of `capszoo.routing.kernel.KernelRouting` with Gaussians (Faria 2019). `backward_chunk` is
their gradient, written d y for that of the loss by y; r2_ij = |mu_j - V_ij|^2, p_q = 1 / sigma_q^2, l_i = log(a_i), and
the logits are s_ij = (k_ij + beta_j l_i) / (alpha_j + beta_j). Equation 13, from the last coefficients and
similarities:

    d theta1_j = d x_j sum_i c_ij k_ij         d theta2_j = d x_j         d theta3_j = d x_j sum_i c_ij l_i
    d c_ij = d x_j (theta1_j k_ij + theta3_j l_i)
    d k_ij = d x_j theta1_j c_ij               d l_i += d x_j theta3_j c_ij

Equation 15, at every step, and the distance in it:

    d w_q += d k_ij exp(-p_q r2_ij / 2)        d p_q -= d k_ij w_q exp(-p_q r2_ij / 2) r2_ij / 2
    d r2_ij = -d k_ij sum_q p_q w_q exp(-p_q r2_ij / 2) / 2
    d mu_j -= 2 sum_i d r2_ij (V_ij - mu_j)    d V_ij += 2 d r2_ij (V_ij - mu_j)

Equation 4, the mean of a step, and equations 11 and 12, its coefficients, which come from the step before:

    d c_ij += sum_d d mu_jd V_ijd              d V_ij += c_ij d mu_j
    d s_ij = c_ij (d c_ij - sum_h c_hj d c_hj),   and with g_ij = d s_ij / (alpha_j + beta_j)
    d k_ij = g_ij                              d l_i += beta_j g_ij
    d alpha_j -= sum_i g_ij s_ij               d beta_j += sum_i g_ij (l_i - s_ij)

A parent depends on its own votes only, so that everything happens for one position and one block of types at a time,
and the way back makes anew what the way out has made.
"""

import collections

import numpy as np

from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.consensus import from_weighted_mean, softmax_over_children, weighted_mean
from capszoo.routing.cpu.entrance import check_count, kernel
from capszoo.routing.cpu.lanes import (
    LANES,
    broadcast,
    broadcast_at,
    exp,
    fma,
    horizontal_sum,
    load,
    maximum,
    store,
)
from capszoo.routing.cpu.networks import Rows
from capszoo.routing.cpu.votes import (
    INPUTS,
    PROBLEM,
    TILE,
    ZERO,
    check_problem,
    chunk_of,
    chunks,
    gradient_shapes,
    input_shapes,
    make_votes,
    parent_shapes,
    product_gradients,
    room,
    votes_at,
)

f32 = np.float32
HALF, TWO = f32(0.5), f32(2.0)

# See `votes.PROBLEM`; count: updates of the coefficients; components: Gaussians.
Problem = collections.namedtuple("Problem", f"{PROBLEM} count components")
# See `votes.INPUTS`, but of activations the logarithms; types: alpha, beta, theta1, theta2, theta3, each [K, lanes];
# mixture: weights and precisions (1 / sigma^2) of the Gaussians, each [components].
Inputs = collections.namedtuple("Inputs", f"{INPUTS} types mixture")
# For one position and block: the parents of all updates, mean [count + 1, D, lanes]; and for each child the
# coefficients, [count + 1, I, lanes], the squared distances from those parents and the similarities to them.
Path = collections.namedtuple("Path", "mean coefficients distance similarity")
# Gradients along it: of every mean, of every distance, and of the coefficients at hand, [I, lanes].
Sweep = collections.namedtuple("Sweep", "mean distance coefficients")


@inner
def _path(problem):
    seen, steps = problem.child.shape[1], problem.count + 1
    pairs = steps * seen * LANES
    return Path(np.empty(steps * TILE, f32), np.empty(pairs, f32), np.empty(pairs, f32), np.empty(pairs, f32))


@inner
def _compare(problem, inputs, votes, v, k, path, t):
    """Distances and similarities of all votes to the mean of step t."""
    seen, components = problem.child.shape[1], inputs.mixture.shape[0] // 2
    for i in range(seen):
        at, z = v + (i * problem.blocks + k) * TILE, (t * seen + i) * LANES
        distance = broadcast(ZERO)
        for d in range(0, TILE, LANES):
            deviation = load(votes, at + d) - load(path.mean, t * TILE + d)
            distance = fma(deviation, deviation, distance)
        similarity = broadcast(ZERO)
        for q in range(components):
            falling = broadcast(-HALF * inputs.mixture[components + q]) * distance
            similarity = fma(broadcast_at(inputs.mixture, q), exp(falling), similarity)
        store(path.distance, z, distance)
        store(path.similarity, z, similarity)


@inner
def _update(problem, inputs, votes, v, b, p, k, path, t):
    """Coefficients and mean of step t from the similarities of step t - 1."""
    seen, width = problem.child.shape[1], problem.blocks * LANES
    alpha, beta = load(inputs.types, k * LANES), load(inputs.types, width + k * LANES)
    first, c = (t - 1) * seen * LANES, t * seen * LANES
    largest = broadcast(f32(-1e30))
    for i in range(seen):
        log_activation = broadcast_at(inputs.activations, b * problem.children + problem.child[p, i])
        logit = fma(beta, log_activation, load(path.similarity, first + i * LANES)) / (alpha + beta)
        store(path.coefficients, c + i * LANES, logit)
        largest = maximum(largest, logit)
    rows = Rows(path.coefficients, c, LANES)
    softmax_over_children(rows, seen, largest)
    weighted_mean(problem, votes, v, k, rows, path.mean, t)


@inner
def _walk(problem, inputs, votes, v, b, p, k, path):
    """All steps, from the uniform mean to the comparison with the last one."""
    seen = problem.child.shape[1]
    path.coefficients[: seen * LANES] = f32(1.0) / f32(seen)
    weighted_mean(problem, votes, v, k, Rows(path.coefficients, 0, LANES), path.mean, 0)
    for t in range(problem.count):
        _compare(problem, inputs, votes, v, k, path, t)
        _update(problem, inputs, votes, v, b, p, k, path, t + 1)
    _compare(problem, inputs, votes, v, k, path, problem.count)


@inner
def _logit(problem, inputs, b, p, k, path):
    """x_j: equation 13."""
    seen, width = problem.child.shape[1], problem.blocks * LANES
    agreement, presence = broadcast(ZERO), broadcast(ZERO)
    for i in range(seen):
        z = (problem.count * seen + i) * LANES
        coefficient = load(path.coefficients, z)
        log_activation = broadcast_at(inputs.activations, b * problem.children + problem.child[p, i])
        agreement = fma(coefficient, load(path.similarity, z), agreement)
        presence = fma(coefficient, log_activation, presence)
    theta1, theta2, theta3 = (
        load(inputs.types, 2 * width + k * LANES),
        load(inputs.types, 3 * width + k * LANES),
        load(inputs.types, 4 * width + k * LANES),
    )
    return fma(theta1, agreement, fma(theta3, presence, theta2))


def _inputs(problem):
    """Shapes of the inputs of a problem that is as it should be."""
    check_problem(problem)
    check_count("count", problem.count)
    check_count("components", problem.components, 1)
    return Inputs(*input_shapes(problem), (5, problem.blocks * LANES), (2 * problem.components,))


def _forward(problem):
    return _inputs(problem), *parent_shapes(problem)


def _backward(problem):
    return *_forward(problem), gradient_shapes(problem, _inputs(problem))


@kernel(_forward, chunks)
def forward_chunk(problem, inputs, mean, logits, chunk):
    """Means `[B, P, K, D, lanes]` and logits `[B, P, K, lanes]` of the parents, for the images of one chunk."""
    votes, path = room(problem), _path(problem)
    for b in chunk_of(problem, chunk):
        make_votes(problem, inputs, b, votes)
        for p in range(problem.child.shape[0]):
            v = votes_at(problem, inputs, b, p, votes)
            for k in range(problem.blocks):
                _walk(problem, inputs, votes, v, b, p, k, path)
                s = (b * problem.child.shape[0] + p) * problem.blocks + k
                for d in range(0, TILE, LANES):
                    store(mean, s * TILE + d, load(path.mean, problem.count * TILE + d))
                store(logits, s * LANES, _logit(problem, inputs, b, p, k, path))


@inner
def _add(array, at, value):
    store(array, at, load(array, at) + value)


@inner
def _through_similarity(inputs, gradients, path, z, chunk, gradient):
    """From the gradient of a similarity to that of its distance, and of the mixture."""
    components = inputs.mixture.shape[0] // 2
    distance, slope = load(path.distance, z), broadcast(ZERO)
    for q in range(components):
        precision = inputs.mixture[components + q]
        term = gradient * exp(broadcast(-HALF * precision) * distance)
        weighted = broadcast_at(inputs.mixture, q) * term
        slope = fma(broadcast(-HALF * precision), weighted, slope)
        m = chunk * 2 * components + q
        gradients.mixture[m] += horizontal_sum(term)
        gradients.mixture[m + components] -= HALF * horizontal_sum(weighted * distance)
    return slope


@inner
def _from_logit(problem, inputs, gradients, path, sweep, b, p, k, chunk, gradient):
    """From the gradient of x_j to those of the last coefficients and distances."""
    seen, width = problem.child.shape[1], problem.blocks * LANES
    g = chunk * 5 * width + k * LANES
    theta1, theta3 = load(inputs.types, 2 * width + k * LANES), load(inputs.types, 4 * width + k * LANES)
    _add(gradients.types, g + 3 * width, gradient)
    for i in range(seen):
        a, z = b * problem.children + problem.child[p, i], (problem.count * seen + i) * LANES
        coefficient, similarity = load(path.coefficients, z), load(path.similarity, z)
        log_activation = broadcast_at(inputs.activations, a)
        d_mean_similarity = gradient * coefficient
        _add(gradients.types, g + 2 * width, d_mean_similarity * similarity)
        _add(gradients.types, g + 4 * width, d_mean_similarity * log_activation)
        gradients.activations[a] += horizontal_sum(d_mean_similarity * theta3)
        store(sweep.coefficients, i * LANES, gradient * fma(theta1, similarity, theta3 * log_activation))
        store(
            sweep.distance,
            z,
            _through_similarity(inputs, gradients, path, z, chunk, d_mean_similarity * theta1),
        )


@inner
def _from_distances(problem, votes, v, k, path, sweep, t):
    """Adds to the gradient of the mean of step t what its distances from the votes have."""
    seen = problem.child.shape[1]
    for d in range(0, TILE, LANES):
        mean, d_mean = load(path.mean, t * TILE + d), broadcast(ZERO)
        for i in range(seen):
            vote = load(votes, v + (i * problem.blocks + k) * TILE + d)
            d_mean = fma(load(sweep.distance, (t * seen + i) * LANES), vote - mean, d_mean)
        _add(sweep.mean, t * TILE + d, broadcast(-TWO) * d_mean)


@inner
def _through_softmax(problem, inputs, gradients, path, sweep, b, p, k, chunk, t, average):
    """From the coefficients of step t to the distances of step t - 1."""
    seen, width = problem.child.shape[1], problem.blocks * LANES
    g = chunk * 5 * width + k * LANES
    alpha, beta = load(inputs.types, k * LANES), load(inputs.types, width + k * LANES)
    both = alpha + beta
    for i in range(seen):
        a, z = b * problem.children + problem.child[p, i], ((t - 1) * seen + i) * LANES
        log_activation = broadcast_at(inputs.activations, a)
        coefficient = load(path.coefficients, (t * seen + i) * LANES)
        scaled = coefficient * (load(sweep.coefficients, i * LANES) - average) / both
        logit = fma(beta, log_activation, load(path.similarity, z)) / both
        _add(gradients.types, g, broadcast(ZERO) - scaled * logit)
        _add(gradients.types, g + width, scaled * (log_activation - logit))
        gradients.activations[a] += horizontal_sum(scaled * beta)
        store(sweep.distance, z, _through_similarity(inputs, gradients, path, z, chunk, scaled))


@inner
def _to_inputs(problem, inputs, gradients, votes, v, path, sweep, b, p, k, chunk, tile):
    """From all steps at once to poses and weights."""
    seen = problem.child.shape[1]
    for i in range(seen):
        at = v + (i * problem.blocks + k) * TILE
        for d in range(0, TILE, LANES):
            vote, gradient = load(votes, at + d), broadcast(ZERO)
            for t in range(problem.count + 1):
                z = (t * seen + i) * LANES
                gradient = fma(load(path.coefficients, z), load(sweep.mean, t * TILE + d), gradient)
                double = broadcast(TWO) * load(sweep.distance, z)
                gradient = fma(double, vote - load(path.mean, t * TILE + d), gradient)
            store(tile, d, gradient)
        product_gradients(
            problem, inputs, gradients, b, chunk, problem.child[p, i], problem.matrix[i], k, tile
        )


@kernel(_backward, chunks)
def backward_chunk(problem, inputs, mean, logits, gradients, chunk):
    """Gradients of a loss whose gradients of what `forward_chunk` makes are `mean` and `logits`, for one chunk."""
    (positions, seen), count = problem.child.shape, problem.count
    votes, path, tile = room(problem), _path(problem), np.empty(TILE, f32)
    sweep = Sweep(
        np.empty((count + 1) * TILE, f32),
        np.empty((count + 1) * seen * LANES, f32),
        np.empty(seen * LANES, f32),
    )
    for b in chunk_of(problem, chunk):
        make_votes(problem, inputs, b, votes)
        for p in range(positions):
            v = votes_at(problem, inputs, b, p, votes)
            for k in range(problem.blocks):
                s = (b * positions + p) * problem.blocks + k
                _walk(problem, inputs, votes, v, b, p, k, path)
                sweep.mean[:] = ZERO
                sweep.mean[count * TILE :] = mean[s * TILE : (s + 1) * TILE]
                _from_logit(problem, inputs, gradients, path, sweep, b, p, k, chunk, load(logits, s * LANES))
                _from_distances(problem, votes, v, k, path, sweep, count)
                for t in range(count, 0, -1):
                    rows = Rows(path.coefficients, t * seen * LANES, LANES)
                    average = from_weighted_mean(
                        problem, votes, v, k, rows, sweep.mean, t, sweep.coefficients
                    )
                    _through_softmax(problem, inputs, gradients, path, sweep, b, p, k, chunk, t, average)
                    _from_distances(problem, votes, v, k, path, sweep, t - 1)
                    sweep.coefficients[:] = ZERO
                _to_inputs(problem, inputs, gradients, votes, v, path, sweep, b, p, k, chunk, tile)
