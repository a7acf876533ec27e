"""What variational-Bayes routing makes of the sums over votes, compiled for the CPU; all else is as in EM routing.

Symbols as in `capszoo.routing.variational_bayes.VariationalBayesRouting` (De Sousa Ribeiro et al. 2020, Algorithm 1).
With a floor of one for the mass, EM's mass is kappa_j and its mean m_j, so that `em_forward` makes all sums. Where EM
has the precision 1 / var_jd of a parent, there is P_jd = nu_j / s_jd, and with it z_ij is EM's:

    z_ij = base_j - sum_d P_jd (V_ijd - m_jd)^2 / 2,        base_j = l_j + (d_j - D / kappa_j) / 2

Backwards, d y being the gradient of the loss by y: what EM takes for the gradient of a variance,

    variance_jd = P_jd (P_jd sum_i d z_ij (V_ijd - m_jd)^2 - sum_i d z_ij) / 2

is nu_j d s_jd here. With density_j = sum_i d z_ij, and after the last iteration with d x_j instead, whose
x_j = beta_a - exp(l_j) H_j - beta_u:

    d l_j = density_j                          or  -exp(l_j) H_j d x_j
    d d_j = density_j / 2                      or  exp(l_j) d x_j / 2, and then d s_jd = -d d_j / s_jd
    d nu_j = d d_j sum_h psi'((nu_j - h) / 2) / 2 - sum_d (variance_jd / P_jd + density_j / 2) / nu_j
    d kappa_j = density_j D / (2 kappa_j^2)
    d alpha_j = psi'(alpha_j) d l_j - psi'(sum_k alpha_k) sum_k d l_k                   # k: types at one position
    d N_j = d alpha_j + d kappa_j + d nu_j

s_jd = 1 + m_jd^2 + sum_i rho_ij (V_ijd - m_jd)^2 does not change with m_jd, which is where it is least. So, of
`em_backward`, square_jd = d s_jd, linear_jd = d m_jd / kappa_j and constant_j = d N_j.
"""

import math

import numpy as np

from capszoo.routing.cpu.compiling import inner
from capszoo.routing.cpu.lanes import LANES, broadcast, load, store
from capszoo.routing.cpu.votes import POSE, TILE, ZERO

f32 = np.float32
ABSENT, ONE = f32(-1e30), f32(1.0)
LOG_2_PI_E = math.log(2.0 * math.pi * math.e)


@inner
def digamma(x):
    """psi(x), see `capszoo.routing.digamma`."""
    below, y = 0.0, x
    while 0.0 < y < 6.0:
        below += 1.0 / y
        y += 1.0
    square = 1.0 / (y * y)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return math.log(y) - 0.5 / y - series - below


@inner
def trigamma(x):
    """psi'(x), the derivative of the same series."""
    below, y = 0.0, x
    while 0.0 < y < 6.0:
        below += 1.0 / (y * y)
        y += 1.0
    square = 1.0 / (y * y)
    series = 1 / 6 - square * (1 / 30 - square * (1 / 42 - square * (1 / 30 - square * 5 / 66)))
    return 1.0 / y + 0.5 * square + square / y * series + below


@inner
def digammas(nu):
    """sum_{h < D} psi((nu - h) / 2): two are made, the others differ by whole numbers."""
    total = 0.0
    for half in (nu / 2.0 - POSE / 2 + 1.0, nu / 2.0 - POSE / 2 + 0.5):
        value = digamma(half)
        for step in range(POSE // 2):
            total += value
            value += 1.0 / (half + step)
    return total


@inner
def trigammas(nu):
    """The same of psi'."""
    total = 0.0
    for half in (nu / 2.0 - POSE / 2 + 1.0, nu / 2.0 - POSE / 2 + 0.5):
        value = trigamma(half)
        for step in range(POSE // 2):
            total += value
            value -= 1.0 / ((half + step) * (half + step))
    return total


@inner
def _log_determinant(fit, s, o, nu):
    """d_j of the parent o of block s, whose s_jd stand where its precisions will be."""
    logarithms = 0.0
    for d in range(0, POSE, 4):
        # Four at a time, whose product in float64 is never too large.
        q, four = s * TILE + d * LANES + o, 1.0
        for entry in range(q, q + 4 * LANES, LANES):
            four *= fit.precision[entry]
        logarithms += math.log(four)
    return digammas(nu) + POSE * math.log(2.0) - logarithms


@inner
def posterior(problem, inputs, fit, first):
    """Precisions, base and logits of all parents at one position, whose blocks begin with `first`; cost is l_j."""
    total, one, smallest = 0.0, broadcast(ONE), broadcast(problem.variance_floor)
    for j in range(problem.types):
        total += fit.mass[first * LANES + j]
    shared = digamma(total)
    for s in range(first, first + problem.blocks):
        n = load(fit.mass, s * LANES)
        for d in range(s * TILE, (s + 1) * TILE, LANES):
            mean = load(fit.mean, d)
            scatter = (one / load(fit.precision, d) - smallest) * n + mean * mean + one
            store(fit.precision, d, scatter)
        for o in range(LANES):
            j, v = (s - first) * LANES + o, s * LANES + o
            fit.base[v], fit.cost[v], fit.logits[v] = ABSENT, ZERO, ZERO
            if j < problem.types:
                kappa = np.float64(fit.mass[v])
                proportion = digamma(kappa) - shared
                determinant = _log_determinant(fit, s, o, kappa + POSE)
                entropy = (POSE * LOG_2_PI_E - determinant) / 2.0
                fit.cost[v] = proportion
                fit.base[v] = proportion + (determinant - POSE / kappa) / 2.0
                fit.logits[v] = inputs.beta_a[j] - (math.exp(proportion) * entropy + inputs.beta_u[j])
        nu = n + broadcast(f32(POSE))
        for d in range(s * TILE, (s + 1) * TILE, LANES):
            store(fit.precision, d, nu / load(fit.precision, d))


@inner
def _proportion_slope(fit, v, slope, last):
    """d l_j and d d_j of the parent at v, of its density or of d x_j."""
    if not last:
        return slope, slope / 2.0
    kappa, proportion = np.float64(fit.mass[v]), np.float64(fit.cost[v])
    determinant = 2.0 * (fit.base[v] - proportion) + POSE / kappa
    share = math.exp(proportion) * slope
    return -share * (POSE * LOG_2_PI_E - determinant) / 2.0, share / 2.0


@inner
def through_posterior(problem, fit, sweep, gradients, b, chunk, t):
    """From gradients of the parents of iteration t to those of the sums that made them."""
    positions, blocks, count = problem.child.shape[0], problem.blocks, len(problem.scales)
    last = t == count - 1
    for p in range(positions):
        u = p * blocks
        s, q = (b * count + t) * positions * blocks + u, t * positions * blocks + u
        total, slopes = 0.0, 0.0
        for j in range(problem.types):
            total += fit.mass[s * LANES + j]
            slopes += _proportion_slope(fit, s * LANES + j, np.float64(sweep.logits[u * LANES + j]), last)[0]
        shared = trigamma(total) * slopes
        for k in range(blocks):
            _through_sums(problem, fit, sweep, s + k, u + k, q + k, last)
        for j in range(problem.types):
            slope = np.float64(sweep.logits[u * LANES + j])
            proportion, determinant = _proportion_slope(fit, s * LANES + j, slope, last)
            kappa = np.float64(fit.mass[s * LANES + j])
            constant = trigamma(kappa) * proportion - shared + determinant * trigammas(kappa + POSE) / 2.0
            if last:
                gradients.beta_a[chunk * blocks * LANES + j] += slope
                gradients.beta_u[chunk * blocks * LANES + j] -= slope
            else:
                constant += slope * POSE / (2.0 * kappa * kappa) - slope * POSE / (2.0 * (kappa + POSE))
            sweep.constant[q * LANES + j] += constant


@inner
def _through_sums(problem, fit, sweep, s, u, q, last):
    """Linear and square terms of 16 parents, and of the constant what the entries of precisions add."""
    n = load(fit.mass, s * LANES)
    nu, constant = n + broadcast(f32(POSE)), broadcast(ZERO)
    determinant = np.zeros(LANES, f32)
    if last:
        for o in range(LANES):
            if fit.base[s * LANES + o] > ABSENT:
                slope = np.float64(sweep.logits[u * LANES + o])
                determinant[o] = _proportion_slope(fit, s * LANES + o, slope, last)[1]
    for d in range(0, TILE, LANES):
        precision, variance = load(fit.precision, s * TILE + d), load(sweep.variance, u * TILE + d)
        constant = constant - variance / precision
        store(sweep.square, q * TILE + d, (variance - load(determinant, 0) * precision) / nu)
        store(sweep.linear, q * TILE + d, load(sweep.mean, u * TILE + d) / n)
    store(sweep.constant, q * LANES, constant / nu)
