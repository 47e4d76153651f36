"""What a trial may still reach: its curve, continued from a rung to the last round, with its uncertainty.

On quadratics, and near a minimum, the loss of a local update method is a limit plus decaying exponentials in rounds. A
curve is modelled in this way on the scale on which areas are measured (logarithmic for positive losses):

    merit(t) = limit + sum over one or two time constants of amplitude · exp(-t / time constant)

Time constants come from a fixed grid, limit and amplitudes have a normal prior, and the noise an inverse gamma one. So
each choice of time constants is a linear regression in closed form. A forecast is the mean over these, weighted by how
well they explain the curve. Nothing is iterated: a forecast takes 0.1 ms, and short, flat, noisy or falling curves are
no special cases.

When a rate is cut, as by plateau decay, another curve begins: evaluations before the cut are left out of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from driftline.results.curves import Array, TrialCurve
from driftline.results.scale import axis_of
from driftline.study.spec import Objective
from trainers import cost_named

RATES = ("client_lr", "server_lr")
CUT = 0.9
"""A rate is cut in a round in which one of `RATES` falls below this share of its value in the round before."""

NOISE = 0.03
"""Expected deviation of an evaluation, in units of the prior deviation of limit and amplitudes: a factor of ten in a
loss, the whole range of a share such as an accuracy, and the largest value of any other metric."""

CONSTANTS = 8
"""Number of time constants, from one round to the rounds of a trial."""

POINTS = 24
"""Most rounds for which a prospect is given."""

DIGITS = 4
"""Significant digits of a prospect, so that rounding in a trial seldom changes a decision."""


@dataclass(frozen=True)
class Prospect:
    """What a trial has reached until a rung, and may reach beyond it.

    Attributes:
        costs: Costs, increasing; (n,).
        merits: The best merit within each cost; expected beyond the rung, (n,).
        spreads: Standard deviations of these, 0 until the rung, (n,).
        start: Merit of the untrained model.
        logarithmic: Whether a merit is -log10 of the metric, instead of the metric or minus it.
    """

    costs: tuple[float, ...]
    merits: tuple[float, ...]
    spreads: tuple[float, ...]
    start: float
    logarithmic: bool = False

    def linear(self) -> Prospect:
        """The prospect on the metric's own scale, for comparison with trials that have negative values."""
        if not self.logarithmic:
            return self
        merits = -(10.0 ** -np.array(self.merits))
        spreads = np.log(10) * np.abs(merits) * np.array(self.spreads)
        start = -(10.0**-self.start)
        return Prospect(self.costs, tuple(merits.tolist()), tuple(spreads.tolist()), start)


def prospect(curve: TrialCurve, objective: Objective, rounds: int) -> Prospect:
    """The prospect of a trial.

    Args:
        curve: The trial until a rung; it has evaluated its quality and has not diverged.
        objective: The study's objective.
        rounds: Rounds of a whole trial.
    """
    at, values, smoothed = curve.smoothed(objective.quality)
    axis = axis_of(objective.quality, [float(values[0])], float(values.min()))
    merits = axis.merit(values)
    grid = _grid(rounds)
    past = grid <= at[-1]
    latest = np.maximum(np.searchsorted(at, grid, side="right") - 1, 0)
    best = np.maximum.accumulate(axis.merit(smoothed))[latest]
    spread = np.zeros(len(grid))
    fitted = at >= min(_cut(curve), at[-1])
    unit = 1.0 if axis.logarithmic or 0 <= values.min() <= values.max() <= 1 else float(np.abs(values).max())
    mean, deviation = forecast(at[fitted], merits[fitted] / unit, grid[~past], rounds)
    best[~past] = np.maximum(unit * mean, best[~past])
    spread[~past] = unit * deviation
    return Prospect(
        costs=_rounded(_costs(curve, objective.cost, grid)),
        merits=_rounded(best),
        spreads=_rounded(spread),
        start=_rounded(merits[:1])[0],
        logarithmic=axis.logarithmic,
    )


def forecast(rounds: Array, merits: Array, later: Array, last: int) -> tuple[Array, Array]:
    """Mean and standard deviation of the merit at later rounds.

    Args:
        rounds: Rounds of the evaluations, (n,), at least one.
        merits: What was measured, (n,).
        later: Rounds, (m,).
        last: Rounds of a whole trial.

    Returns:
        Two arrays, (m,).
    """
    level = merits[-1]
    past, future = _basis(tuple(rounds.tolist()), last), _basis(tuple(later.tolist()), last)
    precision = np.eye(3) * NOISE**2 + past.transpose(0, 2, 1) @ past
    moments = past.transpose(0, 2, 1) @ (merits - level)
    solved = np.linalg.solve(precision, np.concatenate([moments[..., None], future.transpose(0, 2, 1)], axis=2))
    means, influence = solved[..., 0], solved[..., 1:]
    shape = 1.5 + len(rounds) / 2  # of the noise: its prior has 3 degrees of freedom
    unexplained = (merits - level) @ (merits - level) - np.sum(means * moments, axis=1)
    scale = 1.5 * NOISE**2 + np.maximum(unexplained, 0.0) / 2
    evidence = -np.linalg.slogdet(precision)[1] / 2 - shape * np.log(scale)
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    centres = np.einsum("kmp,kp->km", future, means)
    variances = (scale / (shape - 1))[:, None] * np.einsum("kmp,kpm->km", future, influence)
    mean = weights @ centres
    return level + mean, np.sqrt(weights @ (np.maximum(variances, 0.0) + (centres - mean) ** 2))


@lru_cache(maxsize=512)
def _basis(rounds: tuple[float, ...], last: int) -> Array:
    """(choices, rounds, 3): 1 and one or two decays, for each choice of time constants; 0 for a missing decay."""
    constants = np.geomspace(1.0, max(last, 2), CONSTANTS)
    decays = np.exp(-np.array(rounds)[None] / constants[:, None])
    choices = [*combinations(range(CONSTANTS), 1), *combinations(range(CONSTANTS), 2)]
    table = np.zeros((len(choices), len(rounds), 3))
    table[:, :, 0] = 1.0
    for row, choice in zip(table, choices, strict=True):
        row[:, 1 : 1 + len(choice)] = decays[list(choice)].T
    return table


@lru_cache(maxsize=32)
def _grid(rounds: int) -> Array:
    return np.unique(np.round(np.geomspace(1, rounds, POINTS)))


def _costs(curve: TrialCurve, name: str, rounds: Array) -> Array:
    """Cost up to each of these rounds, at least `Cost.first`; beyond the curve, it grows at its mean rate."""
    counted = curve.cost(name)
    so_far = counted[np.maximum(np.searchsorted(curve.rounds, rounds, side="right") - 1, 0)]
    done = max(curve.rounds_done, 1)
    whole = np.where(rounds <= done, so_far, counted[-1] * rounds / done)
    return np.asarray(np.maximum.accumulate(np.maximum(whole, cost_named(name).first)))


def _cut(curve: TrialCurve) -> float:
    """The first round after the latest cut of a rate; round 1 if none was cut."""
    latest = 1.0
    for name in RATES:
        rates = curve.columns.get(name, np.zeros(0))
        (cuts,) = np.nonzero(rates[1:] < CUT * rates[:-1])
        latest = max(latest, float(curve.rounds[cuts[-1] + 1])) if len(cuts) else latest
    return latest


def _rounded(values: Array) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in values)
