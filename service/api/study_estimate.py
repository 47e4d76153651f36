"""Estimates a study's cost: its budget times the cost of a round in earlier studies of the project. Trains nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from driftline.errors import DriftlineError
from driftline.study.spec import Resources
from driftline.wire.budgets import StudyEstimate
from service.driver.search.actions import SearchPlan
from service.driver.search.policy import packs
from service.driver.search.study_plan import decided
from service.store.speeds import COUNTERS, Measured, Speed
from service.store.store import Store
from service.store.stored_spec import StoredSpec

_HOUR_S = 3600.0
_LONGEST_S = 100 * 365 * 24 * _HOUR_S  # no finish date beyond this
_NAMED = 3  # maximum number of methods or studies named in a line


@dataclass(frozen=True)
class _Time:
    seconds: float
    cpu_hours: float
    gpu_hours: float


def estimate(store: Store, project: str, spec: Mapping[str, Any]) -> StudyEstimate:
    """Estimate what a study will cost.

    Args:
        store: Holds the earlier studies.
        project: The project whose earlier studies count.
        spec: A checked study in canonical form; not parsed again as a `Study`, because that is slow.
    """
    stored = StoredSpec(spec)
    methods, budget, resources = stored.methods, stored.budget, stored.resources
    trials = budget.trials * len(methods)
    gpus = 0.0 if resources.gpu == "auto" else float(resources.gpu)
    plan = decided(budget, resources, stored.sampler, gpus)
    rests_on = ["trials and rounds: the budget, if no trial diverges; packs: as few as the study's plan allows"]
    if budget.branches > 1:
        rests_on.append("branches: client_gradients of each trial alone; time as earlier studies took, branches or not")
    measured = store.speeds.measured(project, spec)
    rounds = budget.rounds_of_trials
    totals = {name: _total(methods, name, measured, rounds, rests_on) for name in COUNTERS}
    time = _time(methods, resources, measured, rounds, rests_on)
    finish = None if time is None else _finish(store, time.seconds, rests_on)
    return StudyEstimate(
        trials=trials,
        packs=packs(SearchPlan.of(tuple(methods), budget, plan)),
        rounds=rounds * len(methods),
        client_gradients=totals["client_gradients"],
        bytes_up=totals["bytes_up"],
        bytes_down=totals["bytes_down"],
        gpu_hours=None if time is None else time.gpu_hours,
        cpu_hours=None if time is None else time.cpu_hours,
        seconds=None if time is None else time.seconds,
        finish=finish,
        rests_on=rests_on,
    )


def _total(
    methods: Mapping[str, str], name: str, measured: Mapping[str, Measured], rounds: int, rests_on: list[str]
) -> int | None:
    """A counter over all trials; None if earlier studies lack it for one of the labels."""
    known = {label: one.counters[name] for label, one in measured.items() if one.counters and name in one.counters}
    if missing := [method for label, method in methods.items() if label not in known]:
        rests_on.append(f"{name}: {_unknown(missing)}")
        return None
    rests_on.append(f"{name}: per round as in earlier studies: {_listed(measured[one].study for one in known)}")
    return round(sum(known.values()) * rounds)


def _time(
    methods: Mapping[str, str],
    resources: Resources,
    measured: Mapping[str, Measured],
    rounds: int,
    rests_on: list[str],
) -> _Time | None:
    """Seconds and hours by the speed of earlier studies; None if the speed of one of the labels is unknown."""
    speeds = {label: one.speed for label, one in measured.items() if one.speed is not None}
    if missing := [method for label, method in methods.items() if label not in speeds]:
        rests_on.append(f"time: {_unknown(missing)}")
        return None
    label_speeds: list[Speed] = list(speeds.values())
    pack_seconds = [speed.pack_seconds_a_round * rounds for speed in label_speeds]
    seconds = sum(one / speed.at_once for one, speed in zip(pack_seconds, label_speeds, strict=True))
    names = _listed(study_id for speed in label_speeds for study_id in speed.studies)
    rests_on.append(f"time: by the speed of earlier studies, with as many workers: {names}")
    return _Time(
        seconds,
        sum(one * resources.cpus for one in pack_seconds) / _HOUR_S,
        sum(one * speed.gpus for one, speed in zip(pack_seconds, label_speeds, strict=True)) / _HOUR_S,
    )


def _unknown(methods: Iterable[str]) -> str:
    same = "on this task with the same local steps, cohorts and batches"
    return f"unknown, no earlier study of this project trained {_listed(methods)} {same}"


def _listed(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - _NAMED} more" if len(distinct) > _NAMED else ""
    return ", ".join(distinct[:_NAMED]) + more


def _finish(store: Store, seconds: float, rests_on: list[str]) -> datetime | None:
    try:
        waits = store.speeds.left_seconds()
    except DriftlineError:
        return None
    if waits is None:
        rests_on.append("finish: unknown, the speed of an earlier unfinished study is not known yet")
        return None
    if waits + seconds > _LONGEST_S:
        return None
    rests_on.append(f"finish: after {waits:.0f} s for the unfinished studies before it, as on one shared cluster")
    return datetime.fromtimestamp(store.session.clock() + waits + seconds, UTC)
