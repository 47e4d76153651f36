"""Studies, reports and results for tests of the store."""

from typing import Any

import sqlalchemy as sa

from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report, TrialResult
from driftline.wire.ids import holder
from driftline.wire.records import Values
from service.store.schema import TRIALS
from service.store.store import Store

from .conftest import SPEC, new_trials

ELSEWHERE = "another-host/77"


def make(store: Store, **options: Any) -> str:
    return store.studies.create(SPEC, "f" * 64, **options).id


def driven(store: Store, count: int = 2, **options: Any) -> tuple[str, int, list[str]]:
    """A study with a driver and trials of fedavg."""
    study = make(store, **options)
    attempt = store.leases.acquire(study, holder()).attempt
    return study, attempt, [trial.id for trial in store.trials.create(study, attempt, new_trials("fedavg", count))]


def packed(
    store: Store, count: int = 2, running: int | None = None, gpus: float = 0.0, **options: Any
) -> tuple[str, int, list[str]]:
    """A study whose driver trains all of its trials, or the first ones, in the pack p1."""
    study, attempt, trials = driven(store, count, **options)
    store.trials.start_pack(study, attempt, "p1", trials[:running], gpus)
    return study, attempt, trials


def bring(store: Store, study: str, state: Any) -> None:
    """Brings a study that the driver of its first attempt holds to this state."""
    wishes = {"PAUSED": "pause", "PAUSING": "pause", "CANCELLED": "cancel", "CANCELLING": "cancel"}
    if state in wishes:
        store.studies.intend(study, wishes[state])
    if state in ("PAUSED", "SUCCEEDED", "FAILED", "CANCELLED"):
        store.leases.release(study, 1, state, "so it is")


def reach(store: Store, study: str, rounds: int) -> None:
    """Lets trials report in any order: as if they had reported this round before."""
    with store.session.write() as connection:
        connection.execute(sa.update(TRIALS).where(TRIALS.c.study_id == study).values(rounds_done=rounds))


def report(attempt: int, trial: str, rounds: range, pack: str = "p1", **options: Any) -> Report:
    columns = {"round": list(rounds), "train_loss": [1.0 / (1 + number) for number in rounds]}
    return Report(
        attempt=attempt, pack=pack, reports={trial: encode(columns)}, rounds_done=max(rounds, default=0), **options
    )


def trained(store: Store, count: int, rounds: int) -> tuple[str, int, list[str]]:
    """A study with a driver and trials of fedavg in a pack, of which the first has reported rounds."""
    study, attempt, trials = packed(store, count)
    store.curves.report(study, report(attempt, trials[0], range(rounds)))
    return study, attempt, trials


def complete(trial: str, quality: float = 0.5) -> TrialResult:
    return TrialResult(trial=trial, state="COMPLETE", values=Values(quality=quality, speed=0.25))
