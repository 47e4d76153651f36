"""Tails and quantiles of Student's t distribution, without SciPy.

The two-sided tail of t with v degrees of freedom is the regularized incomplete beta function I_x(v/2, 1/2) at
x = v / (v + t^2) (Abramowitz and Stegun 26.7.1), by its continued fraction (26.5.8; Lentz's method).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL = 1e8
"""Degrees of freedom beyond which the normal distribution is used."""
_TINY = 1e-300


def two_sided(t: float, freedom: float) -> float:
    """The probability of a value at least as far from 0 as t."""
    if freedom > _NORMAL:
        return math.erfc(abs(t) / math.sqrt(2))
    half, ratio = freedom / 2, t * t / freedom
    if not ratio:
        return 1.0
    if math.isinf(ratio):
        return 0.0
    x, complement = 1 / (1 + ratio), ratio / (1 + ratio)
    front = math.exp(_log_gamma_step(half) - math.lgamma(0.5) - half * math.log1p(ratio) + 0.5 * math.log(complement))
    if x < (half + 1) / (half + 2.5):
        return front * _fraction(half, 0.5, x) / half
    return 1 - front * _fraction(0.5, half, complement) / 0.5


@lru_cache(maxsize=1024)
def quantile(probability: float, freedom: float) -> float:
    """The value below which t lies with this probability, in (0, 1)."""
    if probability < 0.5:
        return -quantile(1 - probability, freedom)
    estimate = NormalDist().inv_cdf(probability)
    if freedom > _NORMAL:
        return estimate
    # Above 0 the distribution function is concave and the normal quantile lies below: Newton's steps rise to the root.
    for _ in range(500):
        excess = 1 - probability - two_sided(estimate, freedom) / 2
        step = -excess / density(estimate, freedom)
        estimate += step
        if abs(step) <= 1e-15 * estimate:
            break
    return estimate


def density(t: float, freedom: float) -> float:
    """The density of t."""
    half = freedom / 2
    scale = _log_gamma_step(half) - 0.5 * math.log(math.pi * freedom)
    return math.exp(scale - (half + 0.5) * math.log1p(t * t / freedom))


def _log_gamma_step(a: float) -> float:
    """log(gamma(a + 1/2) / gamma(a)); by its series where the difference would lose digits."""
    if a < 200:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return 0.5 * math.log(a) - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b), without the factor before it."""
    total = below = 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    above = 1.0
    for m in range(1, 100_000):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            below = 1 / (1 + factor * below or _TINY)
            above = 1 + factor / above or _TINY
            total *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return total
