"""Studies with a larger budget, and what their packs used; every test runs on SQLite and on PostgreSQL."""

from typing import Any

import pytest

from driftline.errors import Conflict, NotFound
from driftline.wire.driver_messages import TrialResult
from driftline.wire.records import StudyRecord
from service.store.schema import PACKS
from service.store.session import Actor
from service.store.store import Store

from .conftest import SPEC, Clock
from .store_setup import bring, complete, driven, make, packed, report

LARGER: dict[str, Any] = {**SPEC["budget"], "trials_per_method": 8}  # type: ignore[dict-item]


def extend(store: Store, study: str, mark: str = "e", was: str = "f") -> StudyRecord:
    return store.studies.extend(study, LARGER, mark * 64, was=was * 64, actor=Actor("t1", "ann"))


@pytest.mark.parametrize("state", ["PENDING", "PAUSED", "SUCCEEDED", "FAILED", "RUNNING", "PAUSING"])
def test_what_becomes_of_an_extended_study(store: Store, state: Any) -> None:
    study = make(store)
    if state != "PENDING":
        store.leases.acquire(study, "h/1")
        bring(store, study, state)
    before = store.studies.get(study)
    assert before.state == state
    after = extend(store, study)
    assert after == store.studies.get(study)
    assert after.state == {"SUCCEEDED": "PENDING", "FAILED": "PENDING"}.get(state, state)
    assert (after.finished_at, after.fingerprint) == (None, "e" * 64)
    assert after.spec == SPEC | {"budget": LARGER}
    assert after.version == before.version + 1
    assert after.progress["fedavg"].rounds_total == (8 + 2) * 10
    assert extend(store, study) == after  # the same again, as from a client that has not heard the answer
    log = [event.data["message"] for event in store.events.read(study) if event.kind == "log"]
    assert log == ["extended: trials_per_method 4 -> 8"]
    assert [event.actor_name for event in store.audit.find(action="study.extend")] == ["ann"]


def test_a_cancelled_study_cannot_be_extended(store: Store) -> None:
    study = make(store)
    store.studies.intend(study, "cancel")
    with pytest.raises(Conflict, match="extend needs a study that is"):
        extend(store, study)
    assert store.studies.get(study).spec == SPEC
    with pytest.raises(NotFound):
        extend(store, "no")


def test_an_extension_of_something_else_is_refused(store: Store) -> None:
    study = make(store)
    extend(store, study)
    with pytest.raises(Conflict, match="at the same time; look at it and try again"):
        extend(store, study, "d")
    assert extend(store, study, "d", was="e").fingerprint == "d" * 64


def test_an_extended_study_is_counted_anew(store: Store) -> None:
    study, attempt, trials = driven(store)
    store.trials.finish(study, attempt, [complete(trial) for trial in trials])
    store.leases.release(study, attempt, "SUCCEEDED")
    assert store.quotas.get("default").use.trials == 0
    extend(store, study)
    assert store.quotas.get("default").use.trials == 2 * (8 + 2)
    assert [one.deaths for one in store.leases.driven()] == [0]
    assert store.leases.acquire(study, "h/2").attempt == 2


def test_a_study_extended_while_it_runs_goes_on_under_another_driver(store: Store) -> None:
    study, attempt, trials = driven(store)
    assert extend(store, study).state == "RUNNING"
    store.trials.finish(study, attempt, [complete(trial) for trial in trials])
    for _ in range(2):  # sent twice
        assert store.leases.release(study, attempt, "SUCCEEDED") == "PENDING"
    assert store.studies.get(study).reason == "it was extended, and continues"


def packs(store: Store) -> list[tuple[Any, ...]]:
    with store.session.read() as connection:
        columns = PACKS.c["pack", "trials", "gpus", "rounds_before", "rounds", "started_at", "ended_at"]
        return [tuple(row) for row in connection.execute(PACKS.select().with_only_columns(*columns).order_by("pack"))]


def test_packs_are_noted_from_their_start_to_their_end(store: Store, clock: Clock) -> None:
    study, attempt, trials = driven(store, 3)
    begun = clock.now
    store.trials.start_pack(study, attempt, "p1", trials[:2], gpus=0.25)
    store.curves.report(study, report(attempt, trials[0], range(8)))
    clock.now += 10
    store.trials.finish(study, attempt, [complete(trials[0])])
    assert packs(store) == [("p1", 2, 0.25, 0, None, begun, None)]  # one of its trials still runs
    store.trials.finish(study, attempt, [TrialResult(trial=trials[1], state="WAITING")])
    assert packs(store) == [("p1", 2, 0.25, 0, 14, begun, begun + 10)]
    store.trials.start_pack(study, attempt, "p2", trials[1:])
    clock.now += 45  # its lease ended after 30 seconds
    store.leases.acquire(study, "another/1")
    assert packs(store)[1] == ("p2", 2, 0.0, 7, 0, begun + 10, begun + 40)


def test_a_clock_that_goes_back_makes_no_negative_use(store: Store, clock: Clock) -> None:
    study, attempt, trials = packed(store, 1, gpus=1)
    clock.now -= 3600
    assert store.quotas.get("default").use.gpu_hours == 0
    store.trials.finish(study, attempt, [complete(trials[0])])
    assert store.quotas.get("default").use.gpu_hours == 0
