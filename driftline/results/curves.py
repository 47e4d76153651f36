"""One trial's curve, smoothed, and the cost of its rounds: the input of all results."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from driftline.errors import InvalidSpec
from driftline.wire.records import TrialRecord
from trainers import COSTS, cost_named, nearest, shown

Array = NDArray[np.float64]
_Value = TypeVar("_Value")
_NO_ROUNDS: Array = np.zeros(0)

WINDOW = 0.1
"""The window of `smooth` at round t spans the last max(1, t / 10) rounds."""

LARGEST = 1e100
"""The largest absolute value of a metric that counts as finite, so that sums and squares of values are finite too."""


@dataclass(frozen=True)
class TrialCurve:
    """A trial and what it reported.

    Attributes:
        trial: Its id.
        label: Label of its entry.
        phase: "search" or "confirmation".
        number: Counts from 0 within label and phase.
        seed: Its seed.
        configuration: Number of the search trial with these hyperparameters.
        hyperparameters: Dotted name to value.
        state: COMPLETE, DIVERGED, ... as in `TrialRecord`; or STOPPED, at a rung.
        columns: Metric to values, (reports,) each; NaN where a metric was not reported. "round" increases.
        error: Why it failed; "" otherwise.
        search: Number of the search that proposed its configuration.
        plan: How it was computed, and what turns its counters into modelled time.
    """

    trial: str
    label: str
    phase: str
    number: int
    seed: int
    configuration: int
    hyperparameters: Mapping[str, Any]
    state: str
    columns: Mapping[str, Array]
    error: str = ""
    search: int = 0
    plan: Mapping[str, Any] = field(default_factory=dict)
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_record(
        cls, record: TrialRecord, columns: Mapping[str, Sequence[Any] | Array], search: int = 0
    ) -> TrialCurve:
        """Builds a curve from a stored trial and its columns (lists with None, or arrays with NaN, for missing values).

        Args:
            record: The trial.
            columns: ``{"round": [...], "test_loss": [...], ...}``, of equal lengths; empty when nothing was reported.
                Arrays of float64 are not copied; none is changed.
            search: Number of the search that proposed its configuration.
        """
        return cls(
            trial=record.id,
            label=record.label,
            phase=record.phase,
            number=record.number,
            seed=record.seed,
            configuration=record.configuration,
            hyperparameters=dict(record.hyperparameters),
            state=record.state,
            columns={name: np.asarray(values, dtype=np.float64) for name, values in columns.items()},
            error=record.error or "",
            search=search,
            plan=record.plan or {},
        )

    @property
    def key(self) -> tuple[str, str, int]:
        """Sort key: label, phase (search before confirmation), number."""
        return (self.label, "0" if self.phase == "search" else "1", self.number)

    @property
    def rounds(self) -> Array:
        """Reported rounds, (reports,)."""
        return self.columns.get("round", _NO_ROUNDS)

    @property
    def rounds_done(self) -> int:
        """Server updates done, according to the last report."""
        return int(self.rounds[-1]) if self.rounds.size else 0

    def metric(self, name: str) -> tuple[Array, Array]:
        """Rounds in which a metric was evaluated with a finite value (see `LARGEST`), and these values.

        Args:
            name: The metric.

        Returns:
            Two arrays (evaluations,); empty if the trial never reported it.
        """
        values = self.columns.get(name)
        if values is None:
            return np.zeros(0), np.zeros(0)
        evaluated = numbers(values)
        return self.rounds[evaluated], values[evaluated]

    def reports(self, name: str) -> bool:
        """Whether any evaluation of this metric was finite."""
        values = self.columns.get(name)
        return values is not None and bool(numbers(values).any())

    def smoothed(self, name: str) -> tuple[Array, Array, Array]:
        """Rounds in which a metric was evaluated with a finite value, its values, and the smoothed values."""

        def compute() -> tuple[Array, Array, Array]:
            at, values = self.metric(name)
            return at, values, smooth(at, values)

        return self.computed(f"smoothed {name}", compute)

    def cost(self, name: str, rounds: Array | None = None) -> Array:
        """Cost of the trial up to each of these rounds.

        Args:
            name: One of `trainers.COSTS`.
            rounds: Reported rounds; all of them by default.

        Returns:
            One value per round, non-decreasing.

        Raises:
            InvalidSpec: Unknown cost, or the trial did not count it.
        """
        counted = self.computed(name, lambda: self._counted(name))
        return counted if rounds is None else counted[np.searchsorted(self.rounds, rounds)]

    def until(self, round_number: int) -> TrialCurve:
        """The trial as it was after this round, STOPPED whatever happened later; itself if it went no further."""
        if self.rounds_done <= round_number:
            return self
        reported = self.rounds <= round_number
        columns = {name: values[reported] for name, values in self.columns.items()}
        return replace(self, columns=columns, state="STOPPED", _cache={})

    def counts(self, column: str) -> bool:
        """Whether it has reported a counter."""
        return column in self.columns

    def cached(self, key: str) -> Any:
        """What is cached under `key`; None if nothing."""
        return self._cache.get(key)

    def keep(self, key: str, value: object) -> None:
        """Caches a value under `key`."""
        self._cache[key] = value

    def computed(self, key: str, compute: Callable[[], _Value]) -> _Value:
        """The result of `compute`, cached under `key`."""
        if key not in self._cache:
            self._cache[key] = compute()
        value: _Value = self._cache[key]
        return value

    def _counted(self, name: str) -> Array:
        if check_cost(name, self.columns) == "rounds" or not self.rounds.size:
            return self.rounds
        counted: Array = costs([self], name)[0]
        return counted


def costs(curves: Sequence[TrialCurve], name: str) -> Array:
    """Cost of several trials with the same number of reports, up to each of them: (trials, reports).

    Args:
        curves: The trials, with at least one report.
        name: One of `trainers.COSTS`.

    Raises:
        InvalidSpec: A trial did not count it.
    """
    for curve in curves:
        for column in cost_named(name).counters:
            if not curve.counts(column):
                raise InvalidSpec(
                    "objective.cost",
                    f"trial {curve.trial} must report {column} for cost={name}; choose cost=rounds, or run the study "
                    "again with this version",
                )
    parts = [finite(np.stack([curve.columns[column] for curve in curves])) for column in cost_named(name).counters]
    return np.asarray(np.maximum.accumulate(np.sum(parts, axis=0), axis=1))


def smooth(rounds: Array, values: Array) -> Array:
    """The mean over the evaluations of the last max(1, t / 10) rounds, for each evaluation.

    s_j = mean of v_i over all i with r_j - max(1, r_j / 10) < r_i <= r_j. The window depends on the round alone: a
    longer budget changes no smoothed value. Where evaluations are sparse, a window holds just one of them.

    Args:
        rounds: Rounds of the evaluations, (n,), increasing.
        values: Their values, (..., n), finite.

    Examples:
        >>> smooth(np.array([0.0, 1.0, 19.0, 20.0]), np.array([8.0, 4.0, 2.0, 1.0])).tolist()
        [8.0, 4.0, 2.0, 1.5]
    """
    if not len(rounds):
        return np.zeros_like(values)
    first = np.searchsorted(rounds, rounds - np.maximum(1.0, WINDOW * rounds), side="right")
    after = np.arange(1, len(rounds) + 1)
    padded = np.concatenate([values, np.zeros((*values.shape[:-1], 1))], axis=-1)
    sums = np.add.reduceat(padded, np.stack([first, after], axis=1).ravel(), axis=-1)[..., ::2]
    return np.asarray(sums / (after - first))


def numbers(values: Array) -> NDArray[np.bool_]:
    """Where a metric was evaluated to a number of at most `LARGEST`."""
    return np.abs(values) <= LARGEST


def finite(values: Array) -> Array:
    """`numpy.nan_to_num`, skipped if all values are finite: it is slow even then."""
    return values if np.isfinite(values).all() else np.nan_to_num(values)


def check_cost(name: str, reported: Container[str] = ()) -> str:
    """Returns the name if it is one of `trainers.COSTS`, or a counter that trials report.

    Args:
        name: The cost.
        reported: The columns of trials; a person's own program may count costs of its own.

    Raises:
        InvalidSpec: Unknown cost; the message names the nearest.
    """
    if name not in COSTS and name not in reported:
        guess = nearest(name, COSTS)
        hint = f"; did you mean {guess}?" if guess else ""
        raise InvalidSpec("objective.cost", f"must be one of {', '.join(COSTS)}, got {shown(name)}{hint}")
    return name


def unit(cost: str) -> str:
    """The unit of a cost within a sentence.

    Examples:
        >>> unit("client_gradients"), unit("time")
        ('client gradients', 'seconds')
    """
    return cost_named(cost).unit.partition(",")[0]


def cost_per_round(curve: TrialCurve, cost: str) -> float | None:
    """Mean cost of one round of this trial; None before its first round."""
    if cost == "rounds":
        return 1.0
    done = curve.rounds_done
    return float(curve.cost(cost)[-1]) / done if done else None
