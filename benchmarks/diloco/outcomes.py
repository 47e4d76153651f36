"""Outcomes of runs, by setting and seed, and what statements are about: least losses and best rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.diloco.cells import Cell
from driftline.results.cross_fitting import found_by_search
from driftline.results.curves import Array, TrialCurve
from driftline.results.recommendation import Span
from driftline.results.runs import Runs, runs_of
from driftline.results.scale import Axis

METRIC, COST = "test_loss", "rounds"
SEARCH = 0
"""The seed that chooses; all others judge."""
AXIS = Axis(rising=False, floor=1e-12)


@dataclass(frozen=True, order=True)
class Setting:
    """What a run was made with.

    Attributes:
        label: diloco, averaging or schedule_free.
        width: Width of the model.
        workers: How many.
        batch: Windows of all workers in a step.
        tokens: Of the whole run.
        local_steps: Steps between two exchanges.
        client_lr: Largest rate of the workers.
        delta_lr: The outer rate.
    """

    label: str
    width: int
    workers: int
    batch: int
    tokens: int
    local_steps: int
    client_lr: float
    delta_lr: float

    def has(self, given: Mapping[str, Any]) -> bool:
        """Whether its fields have these values; a tuple stands for any of its values."""
        return all(
            getattr(self, name) in (value if isinstance(value, tuple) else (value,)) for name, value in given.items()
        )

    @classmethod
    def of(cls, cell: Cell, hyperparameters: Mapping[str, Any]) -> Setting:
        """The setting of a configuration of a cell."""
        rates = {name: hyperparameters[name] for name in ("local_steps", "client_lr", "delta_lr")}
        return cls(cell.label, cell.width, cell.workers, cell.batch, cell.tokens, **rates)


@dataclass(frozen=True)
class Outcomes:
    """Trials by setting and seed.

    Attributes:
        trials: Setting -> seed -> its trial, ended.
    """

    trials: Mapping[Setting, Mapping[int, TrialCurve]]

    @classmethod
    def of(cls, found: Iterable[tuple[Cell, TrialCurve]]) -> Outcomes:
        """The outcomes of trials of cells; a setting that two cells have is one."""
        trials: dict[Setting, dict[int, TrialCurve]] = {}
        for cell, trial in found:
            trials.setdefault(Setting.of(cell, trial.hyperparameters), {})[trial.seed] = trial
        return cls(trials)

    def whole(self, settings: Sequence[Setting]) -> Shared:
        """The runs of these settings, on the seeds on which all of them have ended; none without that of the search."""
        ended = set.intersection(*(set(self.trials.get(setting, ())) for setting in settings))
        seeds = sorted(ended - {SEARCH}) if SEARCH in ended else []
        runs = {setting: self._runs(setting, seeds) for setting in sorted(settings) if seeds}
        return Shared(len(seeds), runs, {setting: self._runs(setting, [SEARCH]) for setting in runs})

    def _runs(self, setting: Setting, seeds: Sequence[int]) -> Runs:
        runs = runs_of(0, [self.trials[setting][seed] for seed in seeds], METRIC, COST)
        assert runs is not None, setting  # round 0 is always evaluated
        return runs


@dataclass(frozen=True)
class Shared:
    """Runs of several settings on the same seeds.

    Attributes:
        seeds: How many; without any, there are no runs.
        runs: Setting -> its runs on the seeds that judge.
        search: Setting -> its run on the seed that chooses.
    """

    seeds: int
    runs: Mapping[Setting, Runs]
    search: Mapping[Setting, Runs]

    def where(self, **given: Any) -> Shared:
        """Those whose settings have these values; see `Setting.has`."""
        runs = {at: each for at, each in self.runs.items() if at.has(given)}
        return Shared(self.seeds, runs, {at: self.search[at] for at in runs})

    def values(self, name: str) -> list[Any]:
        """The values of a field of the settings, increasing."""
        return sorted({getattr(setting, name) for setting in self.runs})

    def loss(self) -> dict[Setting, Array]:
        """Natural logarithm of the final loss, (seeds,); of diverged runs that of the untrained model."""
        return {setting: np.log(runs.quality[:, -1]) for setting, runs in self.runs.items()}

    def diverged(self) -> int:
        """How many runs diverged."""
        return sum(int((runs.diverged < len(runs.rounds)).sum()) for runs in self.runs.values())

    def best_setting(self) -> Setting:
        """The setting with the least mean log loss over all seeds."""
        loss = self.loss()
        return min(loss, key=lambda setting: float(loss[setting].mean()))

    def least(self) -> Array:
        """The log loss on each seed of the setting that is best on the seed of the search, (seeds,).

        Choosing on all other seeds instead makes the numbers depend on each other: of 100 sets of outcomes with nothing
        but noise, S1 then disagreed in 11.
        """
        runs, search = list(self.runs.values()), list(self.search.values())
        last = float(max(each.cost[:, -1].max() for each in (*runs, *search)))
        steps = found_by_search(runs, search, AXIS, Span(1.0, last))
        return np.array([float(np.log(step.at(np.array([last]))[0])) for step in steps])

    def best(self, name: str) -> Array:
        """Log2 of the best value of a field on each seed, (seeds,).

        For each value, the other fields are those with the least mean loss over all seeds. Between the best value and
        its two neighbours, the vertex of a parabola through their losses is taken; at an end of the grid, the end.
        """
        loss, values = self.loss(), self.values(name)
        profile = []
        for value in values:
            own = [loss[setting] for setting in loss if getattr(setting, name) == value]
            profile.append(min(own, key=lambda each: float(each.mean())))
        return np.array([_vertex(np.log2(values), row) for row in np.array(profile).T])

    def at_edge(self, name: str) -> float:
        """Share of the seeds on which the best value of a field is an end of the grid."""
        ends = np.log2([self.values(name)[0], self.values(name)[-1]])
        return float(np.isin(self.best(name), ends).mean())


def _vertex(at: Array, losses: Array) -> float:
    """Where the parabola through the least loss and its neighbours is least; the end if the least is there."""
    least = int(np.argmin(losses))
    if least in (0, len(at) - 1):
        return float(at[least])
    quadratic, linear, _ = np.polyfit(at[least - 1 : least + 2] - at[least], losses[least - 1 : least + 2], 2)
    return float(at[least] - linear / (2 * quadratic)) if quadratic > 0 else float(at[least])


def slope(rows: Mapping[Any, Array]) -> Array:
    """Least-squares slope over log2 of the keys of what they map to, (seeds,) each."""
    at = np.log2(np.array(list(rows), dtype=np.float64))
    at -= at.mean()
    values = np.array(list(rows.values()))
    return np.asarray(at @ (values - values.mean(0)) / (at @ at))
