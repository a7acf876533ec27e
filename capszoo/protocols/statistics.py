"""Intervals of 95 % for shares and means."""

import math

import numpy as np

from capszoo.extras import extra


def wilson(successes: float, n: float, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson score interval of a share, 95 % by default.

        centre = (p + z^2 / 2n) / (1 + z^2 / n)
        half = z / (1 + z^2 / n) * sqrt(p (1 - p) / n + z^2 / 4n^2),   p = successes / n

    Unlike p +- z * sqrt(p (1 - p) / n) it stays in [0, 1] and is honest for the few errors of a good model.
    Errors: `ValueError` unless 0 <= successes <= n and n >= 1.
    Source: E. B. Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"0 <= successes <= n and n >= 1 are needed. Received: {successes} of {n}")
    share, shrink = successes / n, 1 + z * z / n
    centre = (share + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def mean_interval(values, z: float = 1.96) -> tuple[float, float]:
    """The interval of a mean of many values, 95 % by default, as if means were normal.

        mean +- z * s / sqrt(N),   s^2 = sum_n (x_n - mean)^2 / (N - 1)

    where:
      values: x `[N]`.

    Errors: `ValueError` for fewer than two values, which have no deviation.
    """
    values = np.asarray(values, "float64")
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"an interval needs at least two values in a row. Received shape: {values.shape}")
    half = z * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - half, float(values.mean()) + half


def few_interval(values) -> tuple[float, float]:
    """The interval of 95 % of a mean of few values, such as those of several trainings.

        mean +- t * s / sqrt(N),   t: Student's quantile of 0.975 with N - 1 degrees of freedom

    It is `mean_interval` with another z: 12.7 for two values, 4.30 for three, 1.96 for very many.
    Errors: `ValueError` for fewer than two values; `ImportError` without SciPy.
    Source: Student 1908, "The probable error of a mean".
    """
    with extra("train"):
        from scipy.stats import t

    return mean_interval(values, float(t.ppf(0.975, max(len(values) - 1, 1))))
