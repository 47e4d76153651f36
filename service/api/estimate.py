"""What a study will cost: counts of its work, and time by the measured speed of this service's earlier studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from driftline.errors import DriftlineError
from driftline.study.spec import Study
from driftline.wire.budgets import StudyEstimate
from service.api import counts
from service.driver.decide import Plan, width
from service.store.speeds import Speed
from service.store.store import Store

_HOUR_S = 3600.0
_LONGEST_S = 100 * 365 * 24 * _HOUR_S  # a date beyond this says nothing


@dataclass(frozen=True)
class _Time:
    seconds: float
    cpu_hours: float
    gpu_hours: float


def estimate(store: Store, project: str, spec: Mapping[str, Any]) -> StudyEstimate:
    """What a study will cost.

    Args:
        store: Where earlier studies are.
        project: Whose studies count as earlier ones.
        spec: A study that has been checked, in its canonical form.

    Raises:
        InvalidSpec: It is no study.
    """
    study = Study.from_json(spec)
    budget = study.budget
    a_label = budget.trials_per_method + min(budget.confirm, budget.trials_per_method) * budget.seeds
    trials = a_label * len(study.labels)
    work = counts.a_round(study)
    rests_on = [f"trials and rounds: the budget, if no trial diverges; packs: {_packs_text(study)}"]
    totals: dict[str, int | None] = dict.fromkeys(("client_gradients", "bytes_up", "bytes_down"))
    if len(work) == len(study.labels):
        rounds = a_label * budget.rounds
        for name in totals:
            totals[name] = round(sum(getattr(one, name) for one in work.values()) * rounds)
        rests_on.append(f"gradients and bytes: counted in a round of each label, over {counts.DRAWS} random settings")
    else:
        missing = ", ".join(label for label in study.labels if label not in work)
        rests_on.append(f"gradients and bytes: not known, a round could not be tried here for {missing}")
    time = _time(store, project, study, a_label * budget.rounds, rests_on)
    finish = None if time is None else _finish(store, time.seconds, rests_on)
    return StudyEstimate(
        trials=trials,
        packs=_packs(study),
        rounds=trials * budget.rounds,
        client_gradients=totals["client_gradients"],
        bytes_up=totals["bytes_up"],
        bytes_down=totals["bytes_down"],
        gpu_hours=None if time is None else time.gpu_hours,
        cpu_hours=None if time is None else time.cpu_hours,
        seconds=None if time is None else time.seconds,
        finish=finish,
        rests_on=rests_on,
    )


def _packs(study: Study) -> int:
    budget = study.budget
    packs = None if study.resources.packs == "auto" else int(study.resources.packs)
    plan = Plan(study.labels, budget.trials_per_method, budget.confirm, budget.seeds, study.seed, packs)
    searched = -(-budget.trials_per_method // width(plan, "search", 1))
    repeated = budget.seeds * -(-plan.repeated // width(plan, "confirmation", 1)) if budget.seeds else 0
    return len(study.labels) * (searched + repeated)


def _packs_text(study: Study) -> str:
    return "as wide as on one worker" if study.resources.packs == "auto" else "as wide as resources.packs says"


def _time(store: Store, project: str, study: Study, rounds: int, rests_on: list[str]) -> _Time | None:
    """Seconds and hours by the speed of earlier studies on the same task; None where a label has none."""
    speeds = store.speeds(project, dict(study.task))
    found: list[Speed] = []
    for entry in study.methods:
        speed = speeds.get(entry.name)
        if speed is None:
            rests_on.append(f"time: not known, no earlier study of this project trained {entry.name} on this task")
            return None
        found.append(speed)
    pack_seconds = [speed.pack_seconds_a_round * rounds for speed in found]
    seconds = sum(one / speed.at_once for one, speed in zip(pack_seconds, found, strict=True))
    names = ", ".join(sorted({study_id for speed in found for study_id in speed.studies}))
    rests_on.append(f"time: the speed of earlier studies on the same task with as many workers: {names}")
    return _Time(
        seconds,
        sum(one * study.resources.cpus for one in pack_seconds) / _HOUR_S,
        sum(one * speed.gpus for one, speed in zip(pack_seconds, found, strict=True)) / _HOUR_S,
    )


def _finish(store: Store, seconds: float, rests_on: list[str]) -> datetime | None:
    try:
        waits = store.left_seconds()
    except DriftlineError:
        return None
    if waits is None:
        rests_on.append("finish: not known, an unfinished study before it has shown no speed yet")
        return None
    if waits + seconds > _LONGEST_S:
        return None
    rests_on.append(f"finish: it waits {waits:.0f} s for the unfinished studies before it, as on one shared cluster")
    return datetime.fromtimestamp(store.clock() + waits + seconds, UTC)
