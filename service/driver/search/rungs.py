"""Which search trials continue beyond a rung: pure rules over the trials of one search of a label.

A decision belongs to a generation and a rung. It is made when all trials of this and of earlier generations that train
until this rung have arrived there or ended before, and depends on these trials only. So neither the number of workers
nor the order in which trials arrive changes a decision, and no later trial does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Protocol

import numpy as np

from driftline.results import objectives
from driftline.results.curves import TrialCurve
from driftline.results.pareto import crowding, layers, select
from driftline.study.rung_rounds import FACTOR
from driftline.study.spec import Objective
from service.driver.search.study_plan import rounded

Values = tuple[float, ...]
"""The values that the sampler maximises, of a trial up to some round."""


@dataclass(frozen=True)
class Climb:
    """A search trial, as far as rungs depend on it.

    Attributes:
        number: Its number within its search.
        generation: Number of the generation in which it was proposed.
        values: At each rung that it has reached, in order, its values so far.
        ended: Whether it diverged or failed after the last of these rungs.
        passed: Beyond how many rungs it is known to have trained, or more.
        stopped: Whether it is known to have been stopped at the next rung.
    """

    number: int
    generation: int
    values: tuple[Values, ...] = ()
    ended: bool = False
    passed: int = 0
    stopped: bool = False


@dataclass(frozen=True)
class Goal:
    """How far a trial may train.

    Attributes:
        rung: Index of the rung until which it may train.
        stopped: Whether it was not promoted beyond this rung.
    """

    rung: int
    stopped: bool = False


class Rule(Protocol):
    """Decides which trials of a generation continue beyond a rung."""

    def promoted(self, arrived: Mapping[int, Values | None], own: Sequence[int]) -> set[int]:
        """The numbers of the trials that continue.

        Args:
            arrived: Values at the rung by number, of the trials of this generation and of earlier ones that were to
                train until it; None for those that diverged or failed before.
            own: Numbers of this generation's trials among them.
        """
        ...


@dataclass(frozen=True)
class Halving:
    """Promotes a fixed share of each generation, rounded up; and the ends of the Pareto set, even beyond this share.

    Trials are ranked among all that have arrived: by non-dominated sorting, within a layer by crowding distance, and
    then by number. Trials that diverged or failed are never promoted.

    Attributes:
        factor: One trial in so many is promoted.
    """

    factor: int = FACTOR

    def promoted(self, arrived: Mapping[int, Values | None], own: Sequence[int]) -> set[int]:
        """The best of the generation by their rank among all trials, and the ends of the Pareto set."""
        finite = {number: values for number, values in sorted(arrived.items()) if values is not None}
        numbers, members = list(finite), set(own)
        ranked, at_ends = _ranked(tuple(finite.values()))
        best = [numbers[index] for index in ranked if numbers[index] in members][: -(-len(members) // self.factor)]
        return {*best, *({numbers[index] for index in at_ends} & members)}


@lru_cache(maxsize=256)
def _ranked(values: tuple[Values, ...]) -> tuple[list[int], list[int]]:
    """Indices of these values, best first, and of the ends of their Pareto set. Needed for every decision again."""
    return select(values, len(values)), ends(values)


def ends(values: Sequence[Values]) -> list[int]:
    """Indices of the ends of the Pareto set; of equal values, the lowest.

    Examples:
        >>> ends([(0, 3), (2, 2), (3, 0), (3, 0), (1, 1)])
        [0, 2]
    """
    if not values:
        return []
    table = np.array(values, dtype=np.float64)
    (first,) = np.nonzero(layers(table) == 0)
    return [int(index) for index in first[np.isinf(crowding(table[first]))]]


def goals(rule: Rule, rungs: int, climbs: Iterable[Climb]) -> dict[int, Goal]:
    """How far each trial of a search may train, by number.

    A trial that has reached its goal and is not stopped there waits for the others, or is complete at the last rung.
    A decision that a trial is known to have followed stands, also if trials are added to its generation or failed ones
    are tried again.

    Args:
        rule: Decides who continues.
        rungs: Number of rungs, the last round included.
        climbs: All trials of the search, in any order; generations are whole.
    """
    by_number = {climb.number: climb for climb in sorted(climbs, key=lambda climb: climb.number)}
    goal_of = {number: Goal(climb.passed, climb.stopped) for number, climb in by_number.items()}
    generations = [list(own) for _, own in groupby(by_number, lambda number: by_number[number].generation)]
    for rung in range(rungs - 1):
        arrived: dict[int, Values | None] = {}
        complete = 0
        for generation in generations:
            own = [number for number in generation if goal_of[number].rung >= rung]
            if not all(by_number[number].ended or len(by_number[number].values) > rung for number in own):
                break
            arrived |= {number: _values_at(by_number[number], rung) for number in own}
            undecided = [n for n in own if goal_of[n] == Goal(rung) and len(by_number[n].values) > rung]
            promoted = rule.promoted(arrived, own) if undecided else set()
            goal_of |= {n: Goal(rung + 1) if n in promoted else Goal(rung, stopped=True) for n in undecided}
            complete += 1
        generations = generations[:complete]  # at the next rung, the others wait
    return goal_of


def reached(curve: TrialCurve, rungs: Sequence[int], objective: Objective) -> list[dict[str, float]]:
    """At each rung that a trial has reached, in order, the values that its sampler is told.

    Args:
        curve: The trial.
        rungs: The rungs, as rounds.
        objective: The study's objective.
    """
    values = []
    for rung in rungs:
        part = curve.until(rung)
        diverged = part.state == "DIVERGED" or np.nansum(part.columns.get("diverged", 0.0)) > 0
        if part.rounds_done < rung or diverged or not part.metric(objective.quality)[0].size:
            break
        told = rounded(objectives.values(part, objective.quality, objective.cost))
        values.append({name: told[name] for name in objective.objectives})
    return values


def _values_at(climb: Climb, rung: int) -> Values | None:
    return climb.values[rung] if len(climb.values) > rung else None
