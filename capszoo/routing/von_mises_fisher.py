"""The von Mises-Fisher distribution: a Gaussian on the unit sphere, for directions of poses."""

import math

import keras
import numpy as np
from keras import ops

from capszoo.routing.squash import length

# Below, a series in x; from there on, a series in 1 / x.
SWITCH = 50.0
SERIES_TERMS = 60
ASYMPTOTIC_TERMS = 16
LARGEST_ORDER = 15.0


def log_bessel_i(order, x):
    """Logarithm of the modified Bessel function of the first kind, ln I_order(x).

        ln sum_m exp((2 m + order) ln(x / 2) - ln m! - ln Gamma(m + order + 1))                 # x < 50
        x - ln(2 pi x) / 2 + ln sum_k (-1)^k a_k / x^k                                          # x >= 50 (Hankel)
        a_k = (4 order^2 - 1)(4 order^2 - 9) ... (4 order^2 - (2 k - 1)^2) / (k! 8^k)

    where:
      order: a number in [0, 15].
      x: tensor of positive numbers.

    Accurate to a few float32 roundings of its largest term, 1e-5 or so; gradients too.
    Errors: `ValueError` for an order outside of [0, 15], where the second series is not good enough.
    Source: NIST Digital Library of Mathematical Functions, 10.25.2 and 10.40.1.
    """
    _check_order(order)
    power = order * ops.log(x) if order else 0.0
    return ops.where(x < SWITCH, _ascending(order, x) + power, _descending(order, x))


def _log_bessel_ratio(order, x):
    """ln(I_order(x) / x^order), which has a limit at zero: -order ln 2 - ln Gamma(order + 1)."""
    power = order * ops.log(ops.maximum(x, SWITCH))
    return ops.where(x < SWITCH, _ascending(order, x), _descending(order, x) - power)


def _ascending(order, x):
    """ln(I_order(x) / x^order) by powers of x, for x < 50: gradients pass through both branches of `where`."""
    m = np.arange(SERIES_TERMS)
    logarithms = np.array([math.lgamma(k + 1) + math.lgamma(k + order + 1) + order * math.log(2) for k in m])
    # At its lower end only the first term, which is constant, is left.
    half = ops.expand_dims(ops.log(ops.clip(x, 1e-30, SWITCH) / 2.0), -1)
    return ops.logsumexp(half * _like(x, 2 * m) - _like(x, logarithms), axis=-1)


def _descending(order, x):
    """ln I_order(x) by powers of 1 / x, for x >= 50."""
    large = ops.maximum(x, SWITCH)
    total = ops.zeros_like(large)
    for coefficient in reversed(_hankel(order)):
        total = coefficient + total / large
    return large - 0.5 * ops.log(2.0 * math.pi * large) + ops.log(total)


def _check_order(order):
    if not 0 <= order <= LARGEST_ORDER:
        raise ValueError(f"order must be in [0, {LARGEST_ORDER:g}]. Received: {order}")


def _like(x, numbers):
    return ops.convert_to_tensor(numbers, dtype=keras.backend.standardize_dtype(x.dtype))


def _hankel(order):
    """(-1)^k a_k for all k."""
    coefficients = [1.0]
    for k in range(1, ASYMPTOTIC_TERMS + 1):
        coefficients.append(-coefficients[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return coefficients


def log_von_mises_fisher(vectors, means, concentrations):
    """Log-density of directions around mean directions, on the unit sphere in d dimensions.

        ln C_d(kappa) + kappa * v / |v| . m / |m|
        C_d(kappa) = kappa^(d / 2 - 1) / ((2 pi)^(d / 2) I_(d / 2 - 1)(kappa))

    where:
      v, m: `vectors[..., d]` and `means[..., d]`, which broadcast. |v| is sqrt(v . v + 1e-7), so that the direction of
        a zero vector is zero and that of one of length 1e-3 has length 0.95; from 0.1 on it is one to 5e-6.
        2 <= d <= 32.
      kappa: `concentrations[...]`, at least zero, where the density is uniform; 0.01 is nearly so, 100 within some tens
        of degrees for d = 16.

    Errors: `ValueError` for d below 2 and above 32.
    Source: Kiefer et al. 2022, section 4.2; Mardia and Jupp 2000, section 9.3.2.
    """
    d = vectors.shape[-1]
    cosines = ops.sum(_direction(vectors) * _direction(means), axis=-1)
    order = d / 2 - 1
    _check_order(order)
    normaliser = -d / 2 * math.log(2 * math.pi) - _log_bessel_ratio(order, concentrations)
    return normaliser + concentrations * cosines


def _direction(vectors):
    return vectors / ops.expand_dims(length(vectors), -1)
