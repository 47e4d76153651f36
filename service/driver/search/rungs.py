"""Which search trials continue beyond a rung: pure rules over the trials of one search of a label.

A decision belongs to a generation and a rung. It is made when all trials of this and of earlier generations that train
until this rung have arrived there or ended before, and depends on these trials only. So neither the number of workers
nor the order in which trials arrive changes a decision, nor does any later trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

import numpy as np

from driftline.results import objectives
from driftline.results.curves import TrialCurve
from driftline.study.spec import Objective
from service.driver.search.forecast import Prospect, prospect
from service.driver.search.rules import Arrival, Rule
from service.driver.search.study_plan import rounded


@dataclass(frozen=True)
class Climb:
    """A search trial, as far as rungs depend on it.

    Attributes:
        number: Its number within its search.
        generation: Number of the generation in which it was proposed.
        arrivals: At each rung that it has reached, in order, what it has reached.
        ended: Whether it diverged or failed after the last of these rungs.
        passed: Number of rungs beyond which it is known to have trained; there may be more.
        stopped: Whether it is known to have been stopped at the next rung.
    """

    number: int
    generation: int
    arrivals: tuple[Arrival, ...] = ()
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


def goals(rule: Rule, rungs: int, climbs: Iterable[Climb], together: bool = True) -> dict[int, Goal]:
    """How far each trial of a search may train, by number.

    A trial that has reached its goal and is not stopped there waits for the others, or is complete at the last rung.
    A decision that a trial is known to have followed stands, also if trials are added to its generation or failed ones
    are tried again.

    Args:
        rule: Decides which trials continue.
        rungs: Number of rungs, the last round included.
        climbs: All trials of the search, in any order; generations are whole.
        together: Whether a generation waits until all its trials have arrived. Otherwise each trial is compared with
            those that have arrived so far, and decisions depend on the order of arrivals.
    """
    by_number = {climb.number: climb for climb in sorted(climbs, key=lambda climb: climb.number)}
    goal_of = {number: Goal(climb.passed, climb.stopped) for number, climb in by_number.items()}
    generations = [list(numbers) for _, numbers in groupby(by_number, lambda number: by_number[number].generation)]
    groups = generations if together else [list(by_number)]
    for rung in range(rungs - 1):
        arrived: dict[int, Arrival | None] = {}
        complete = 0
        for group in groups:
            eligible = [number for number in group if goal_of[number].rung >= rung]
            present = [n for n in eligible if by_number[n].ended or len(by_number[n].arrivals) > rung]
            if together and len(present) < len(eligible):
                break
            arrived |= {number: _arrival(by_number[number], rung) for number in present}
            undecided = [n for n in present if goal_of[n] == Goal(rung) and arrived[n] is not None]
            promoted = rule.promoted(arrived, present) if undecided else set()
            goal_of |= {n: Goal(rung + 1) if n in promoted else Goal(rung, stopped=True) for n in undecided}
            complete += 1
        groups = groups[:complete]  # at the next rung, the others wait
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


def prospects(curve: TrialCurve, rungs: Sequence[int], objective: Objective) -> list[Prospect]:
    """At each rung that a trial has reached, in order, what it may still reach.

    Args:
        curve: The trial.
        rungs: The rungs, as rounds.
        objective: The study's objective.
    """
    count = len(reached(curve, rungs[:-1], objective))
    return [prospect(curve.until(rung), objective, rungs[-1]) for rung in rungs[:count]]


def arrivals(told: Sequence[Mapping[str, float]], ahead: Sequence[Prospect] = ()) -> tuple[Arrival, ...]:
    """A trial at each rung that it has reached.

    Args:
        told: What its sampler is told there, from `reached`.
        ahead: What it may still reach, from `prospects`, if the rule asks for it.
    """
    return tuple(Arrival(tuple(values.values()), view) for values, view in zip_longest(told, ahead))


def _arrival(climb: Climb, rung: int) -> Arrival | None:
    return climb.arrivals[rung] if len(climb.arrivals) > rung else None
