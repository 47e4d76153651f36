"""Statistics of differences: intervals, corrections for several comparisons, bands along the cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from driftline.results.curves import Array
from driftline.results.scale import ROUNDING
from driftline.results.t_distribution import quantile, two_sided
from driftline.study.budget import LEAST_PAIRS

LEVEL = 0.95
POWER = 0.8
MOST_FLIPS = 2**12
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Test:
    """A t test.

    Attributes:
        mean: Mean, as of a difference.
        error: Its standard error; 0 is no evidence.
        freedom: Degrees of freedom of the t distribution.
    """

    __test__ = False  # for pytest

    mean: float
    error: float
    freedom: float

    @property
    def p(self) -> float:
        """Two-sided p value; 1 without a standard error, because a spread of 0 is no evidence."""
        if not self.error:
            return 1.0
        return two_sided(self.mean / self.error, self.freedom)

    def interval(self, level: float) -> tuple[float, float]:
        """The t interval of the mean at this level."""
        half = quantile(0.5 + level / 2, self.freedom) * self.error
        return self.mean - half, self.mean + half

    def detectable(self, level: float) -> float:
        """The true mean that such a test would have found with a probability of 80 %."""
        return (quantile(0.5 + level / 2, self.freedom) + quantile(POWER, self.freedom)) * self.error


@dataclass(frozen=True)
class Paired(Test):
    """Two tests of paired differences: a t test, and one by sign flips, which needs no normal distribution.

    Attributes:
        p_signs: Share of all signs of the differences (drawn at random beyond `MOST_FLIPS`) with a mean at least as far
            from 0. With 6 pairs it is below 5 % only if all differences have the same sign.
    """

    p_signs: float


def paired(differences: Sequence[float]) -> Paired | None:
    """The tests of these differences; None with fewer than two."""
    count = len(differences)
    if count < 2:
        return None
    values = np.asarray(differences, dtype=np.float64)
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(count))
    if error <= 1e-12 * float(np.abs(values).max()):
        return Paired(mean, 0.0, count - 1, p_signs=1.0)
    sums = np.abs(_signs(count) @ values)
    p_signs = float(np.mean(sums >= sums[0] * (1 - ROUNDING)))  # sums that differ by rounding are equal
    return Paired(mean, error, count - 1, p_signs=p_signs)


def welch(one: Sequence[float] | Array, other: Sequence[float] | Array) -> Test:
    """Welch's test of the difference of two means: of independent samples, at least two values each.

    Examples:
        >>> test = welch([1.0, 2.0, 3.0], [4.0, 6.0, 8.0])
        >>> test.mean, round(test.error, 3), round(test.freedom, 2)
        (-4.0, 1.291, 2.94)
    """
    samples = [np.asarray(values, dtype=np.float64) for values in (one, other)]
    first, second = (float(values.var(ddof=1)) / len(values) for values in samples)
    spread = first**2 / (len(one) - 1) + second**2 / (len(other) - 1)
    freedom = (first + second) ** 2 / spread if spread else len(one) + len(other) - 2.0
    return Test(float(samples[0].mean() - samples[1].mean()), math.sqrt(first + second), freedom)


def holm(p_values: Mapping[_Key, float]) -> dict[_Key, tuple[float, float]]:
    """Holm's correction over a family of tests.

    Args:
        p_values: Test -> its p value.

    Returns:
        Test -> (adjusted p value, level of its interval). The interval at this level excludes 0 exactly if the adjusted
        p value is below 5 %: from the first test that is not significant on, the level stays the same.

    Examples:
        >>> {name: round(p, 3) for name, (p, _) in holm({"a": 0.01, "b": 0.04, "c": 0.03}).items()}
        {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    corrected: dict[_Key, tuple[float, float]] = {}
    largest, level = 0.0, LEVEL
    for index, (key, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        left = len(p_values) - index
        if largest <= 1 - LEVEL:
            level = 1 - (1 - LEVEL) / left
        largest = max(largest, min(1.0, left * p))
        corrected[key] = largest, level
    return corrected


def band(differences: Array, limit: float | None = None) -> tuple[Array, Array] | None:
    """A simultaneous band for the mean difference along a grid, from the largest statistic under sign flips.

    The statistic at a point is |sum of d| / sqrt(sum of d^2). Where the band excludes 0, the labels differ at 5 % for
    the whole grid, and for all comparisons of the limit.

    Args:
        differences: (pairs, points).
        limit: From `band_limit` of all comparisons; of this one alone by default.

    Returns:
        (low, high), (points,) each; None with fewer than `LEAST_PAIRS` pairs.
    """
    pairs = len(differences)
    if pairs < LEAST_PAIRS:
        return None
    if limit is None:
        limit = band_limit([dict(enumerate(differences))])
    mean, error = differences.mean(axis=0), differences.std(axis=0, ddof=1) / np.sqrt(pairs)
    divisor = pairs - limit**2
    half = np.sqrt((pairs - 1) / divisor) * limit * error if divisor > 1e-9 else np.where(error > 0, np.inf, 0.0)
    return mean - half, mean + half


def band_limit(comparisons: Iterable[Mapping[Any, Array]]) -> float:
    """The limit that the statistic of `band` exceeds nowhere in 95 % of cases, if no label of a comparison is better.

    The largest statistic over all comparisons and points is compared with that of the same differences with random
    signs, one sign for a search or seed in all comparisons (all signs up to `MOST_FLIPS`, otherwise `MOST_FLIPS` drawn
    with a fixed seed).

    Args:
        comparisons: For each comparison, the differences, (points,), by search or by seed.
    """
    tested = [rows for rows in comparisons if len(rows) >= LEAST_PAIRS]
    keys = sorted({key for rows in tested for key in rows})
    if not keys:
        return 0.0
    signs = _signs(len(keys))
    largest = np.zeros(len(signs))
    for rows in tested:
        table = np.array([rows[key] for key in keys if key in rows])
        size = np.sqrt((table**2).sum(axis=0))
        shares = np.divide(table, size, out=np.zeros_like(table), where=size > 0)
        row_signs = signs[:, [key in rows for key in keys]]
        largest = np.maximum(largest, np.abs(row_signs @ shares).max(axis=1))
    limit = np.sort(largest)[int(np.ceil(LEVEL * len(largest))) - 1]
    return float(limit) * (1 + ROUNDING)  # statistics that differ by rounding are equal


@lru_cache(maxsize=4)
def _signs(pairs: int) -> Array:
    """(flips, pairs) of -1 and 1; the first row flips nothing.

    Where these are all flips, rows begin with 1: flipping all signs changes no statistic.
    """
    if 2 ** (pairs - 1) <= MOST_FLIPS:
        return np.array([(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=pairs - 1)])
    drawn = np.random.default_rng(0).choice([-1.0, 1.0], size=(MOST_FLIPS, pairs))
    drawn[0] = 1.0
    return drawn
