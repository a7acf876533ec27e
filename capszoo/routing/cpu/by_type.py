"""Coefficients that sum to one for every type of parent, compiled for the CPU: the E-step of the authors' code.

With g the type of child i, for every type of parent o, and sums and maxima over the positions of parents,

    m_go = max over children of g and positions of z_io
    R_io = exp(z_io - m_go) / (sum exp(z_io - m_go) + 1e-7)

so that types do not compete. What is kept of an iteration, `evidence [B, T, C + G, K * lanes]`, is of all children
l_io = log(sum exp(z_io - m_go) + 1e-7), with which log(R_io) = z_io - m_go - l_io, and behind them m_go of all groups.

Backwards, d y being the gradient of the loss by y, with rho = R a:

    d z_io = rho_io (d rho_io - sum R_io d rho_io)
    d m_go = -sum_i a_i w_io sum R_io d rho_io,         w_io = 1e-7 exp(-l_io)

and d m_go goes to the z_io that is m_go, to the last of several.

Source: the authors' code of Hinton et al. 2018, see `capszoo.routing.em.EMRouting`.
"""

import math

import numpy as np

from capszoo.routing import em_coefficients
from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.lanes import LANES, broadcast, exp, horizontal_max, load, maximum, store
from capszoo.routing.cpu.votes import ZERO

f32 = np.float32
NOTHING, LEAST = f32(-1e30), f32(em_coefficients.LEAST)


@inner
def _evidence_at(problem, b, t, row):
    """Where a row of the evidence of iteration t begins."""
    rows = problem.children + problem.groups
    return ((b * len(problem.scales) + t) * rows + row) * problem.blocks * LANES


@inner
def normalise_by_type(problem, fit, b, t, share):
    """Of z in `share`: R."""
    child, blocks, evidence = problem.child, problem.blocks, fit.evidence
    positions, seen = child.shape
    start, peaks = _evidence_at(problem, b, t, 0), _evidence_at(problem, b, t, problem.children)
    end = peaks + problem.groups * blocks * LANES
    evidence[start:peaks] = ZERO
    evidence[peaks:end] = NOTHING
    for p in range(positions):
        for i in range(seen):
            g = peaks + (child[p, i] % problem.groups) * blocks * LANES
            for k in range(blocks):
                value = load(share, ((p * seen + i) * blocks + k) * LANES)
                store(evidence, g + k * LANES, maximum(load(evidence, g + k * LANES), value))
    for g in range(problem.groups):
        # So that the padding, whose z is of nothing, has no share.
        for j in range(problem.types, blocks * LANES):
            evidence[peaks + g * blocks * LANES + j] = ZERO
    for p in range(positions):
        for i in range(seen):
            j, z = child[p, i], (p * seen + i) * blocks
            e, g = start + j * blocks * LANES, peaks + (j % problem.groups) * blocks * LANES
            for k in range(0, blocks * LANES, LANES):
                term = exp(load(share, z * LANES + k) - load(evidence, g + k))
                store(share, z * LANES + k, term)
                store(evidence, e + k, load(evidence, e + k) + term)
    for p in range(positions):
        for i in range(seen):
            z, e = (p * seen + i) * blocks * LANES, start + child[p, i] * blocks * LANES
            for k in range(0, blocks * LANES, LANES):
                store(share, z + k, load(share, z + k) / (load(evidence, e + k) + broadcast(LEAST)))
    for e in range(start, peaks):
        evidence[e] = math.log(evidence[e] + LEAST)


@inner
def coefficient_by_type(problem, fit, b, t, j, k, value):
    """R of the pair of child j and 16 types of parents, whose z is `value`."""
    row = _evidence_at(problem, b, t, j)
    peak = _evidence_at(problem, b, t, problem.children + j % problem.groups)
    return exp(value - load(fit.evidence, peak + k * LANES) - load(fit.evidence, row + k * LANES))


@inner
def find_peak(problem, fit, b, t, j, k, value, z, top):
    """Notes in `top [G, K * lanes]` where the largest z of a group is: at pair z, if `value` is it."""
    peaks, g = _evidence_at(problem, b, t, problem.children), j % problem.groups
    gap = value - load(fit.evidence, peaks + (g * problem.blocks + k) * LANES)
    if horizontal_max(gap) >= ZERO:
        gaps = np.empty(LANES, f32)
        store(gaps, 0, gap)
        for o in range(LANES):
            if gaps[o] >= ZERO:
                top[(g * problem.blocks + k) * LANES + o] = (z + k) * LANES + o


@inner
def through_peaks(problem, inputs, fit, b, t, means, top, d_z):
    """Adds to `d_z` the gradients of the peaks, whose pairs `top` has; `means [C, K * lanes]`: sum R d rho."""
    width = problem.blocks * LANES
    slopes = np.zeros(problem.groups * width)
    for j in range(problem.children):
        activation = inputs.activations[b * problem.children + j]
        g, row = j % problem.groups, _evidence_at(problem, b, t, j)
        for k in range(problem.types):
            weight = LEAST * math.exp(-fit.evidence[row + k])
            slopes[g * width + k] -= activation * weight * means[j * width + k]
    for g in range(problem.groups):
        for k in range(problem.types):
            d_z[top[g * width + k]] += slopes[g * width + k]
