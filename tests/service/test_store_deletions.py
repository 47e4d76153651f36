"""Deleted studies are hidden at once and removed in steps, on SQLite and PostgreSQL."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from driftline.errors import Conflict, InvalidSpec, NotFound, QuotaExceeded
from driftline.wire.access import Quota
from driftline.wire.logs import NewLine, NewLines
from driftline.wire.records import StudyState
from service.store.deletions import Deletion
from service.store.recorder_state import Recorded
from service.store.schema import DELETIONS, IDEMPOTENCY_KEYS, STUDIES
from service.store.session import Actor
from service.store.store import Store
from tests.waiting import together

from .conftest import SPEC, Clock, new_trials
from .store_setup import bring, complete, make, packed, report
from .test_store_migrations import rows

DAY = 24 * 3600.0


def finished(store: Store, clock: Clock, *, gpus: float = 0.0, seconds: float = 0.0) -> str:
    """A SUCCEEDED study with rows in every table."""
    study, attempt, trials = packed(store, gpus=gpus)
    for trial in trials:
        store.curves.report(study, report(attempt, trial, range(600)))
    store.logs.write(study, NewLines(attempt=attempt, lines=[NewLine(at=1.0, text=f"line {at}") for at in range(9)]))
    store.recorder_state.write(study, Recorded("study", "", "run-1", 1))
    clock.now += seconds
    store.trials.finish(study, attempt, [complete(trial) for trial in trials])
    store.leases.release(study, attempt, "SUCCEEDED")
    return study


def counts(store: Store) -> dict[str, int]:
    """Number of rows by table, without rows that a deletion adds."""
    return {name: count for name, count in rows(store).items() if name not in ("audit", "deletions", "past_use")}


def test_nothing_is_left_of_a_deleted_study_and_others_stay(store: Store, clock: Clock) -> None:
    kept = finished(store, clock)
    record, curves, before = store.studies.get(kept), store.curves.columns(kept), counts(store)
    study = finished(store, clock)
    store.deletions.request(study)
    steps = 1
    while store.deletions.purge(rows=3):
        steps += 1
    assert steps > 4
    assert counts(store) == before
    assert (store.studies.get(kept), store.curves.columns(kept)) == (record, curves)
    assert not store.deletions.purge()


def test_a_deleted_study_is_hidden_before_its_rows_are_gone(store: Store, clock: Clock) -> None:
    study = finished(store, clock)
    failed = make(store)
    store.leases.settle(failed, "FAILED", "no")
    store.deletions.request(failed)
    store.deletions.request(study)
    gone: list[Callable[[], object]] = [
        lambda: store.studies.get(study),
        lambda: store.studies.glance(study),
        lambda: store.studies.intend(failed, "resume"),
        lambda: store.retries.request(study),
        lambda: store.trials.find(study),
        lambda: store.curves.columns(study),
        lambda: store.curves.arrays(study),
        lambda: store.events.tail(study, after=0, limit=1),
        lambda: store.logs.read(study),
        lambda: store.logs.write(study, NewLines(attempt=1, lines=[NewLine(at=1.0, text="late")])),
        lambda: store.recorder_state.write(study, Recorded("ended", "", "run-1", 1)),
        lambda: store.leases.acquire(study, "h/1"),
        lambda: store.trials.create(study, 1, new_trials("fedavg", 1, start=7)),
        lambda: store.deletions.request(study),
    ]
    for ask in gone:
        with pytest.raises(NotFound, match="no study"):
            ask()
    assert store.studies.find() == []
    assert store.studies.not_cancelled() == set()
    assert store.stats.overview().studies == {}
    assert store.stats.overview().behind == 0
    assert rows(store)["trials"] == 2


@pytest.mark.parametrize("state", ["PENDING", "QUEUED", "RUNNING", "PAUSING", "CANCELLING"])
def test_a_study_that_runs_or_waits_is_not_deleted(store: Store, state: StudyState) -> None:
    study = make(store)
    if state == "QUEUED":
        store.leases.settle(study, "QUEUED")
    elif state != "PENDING":
        store.leases.acquire(study, "elsewhere/1")
        bring(store, study, state)
    with pytest.raises(Conflict, match=f"a study that is {state.lower()} cannot be deleted: {study}; cancel it first"):
        store.deletions.request(study)
    assert store.studies.get(study).state == state
    assert store.audit.find(action="study.delete") == []


def test_a_study_that_a_driver_holds_is_not_deleted(store: Store, clock: Clock) -> None:
    study = make(store)
    store.leases.acquire(study, "elsewhere/1")
    with store.session.write() as connection:  # by an owner of an older Driftline, say
        connection.execute(sa.update(STUDIES).values(state="FAILED"))
    with pytest.raises(Conflict, match="a driver holds study"):
        store.deletions.request(study)
    clock.now += store.session.lease_seconds + 1
    store.deletions.request(study)


@pytest.mark.parametrize("wish", ["pause", "cancel"])
def test_paused_and_cancelled_studies_are_deleted_with_a_line_in_the_audit_trail(store: Store, wish: str) -> None:
    study = make(store)
    was = store.studies.intend(study, wish).state
    store.deletions.request(study, actor=Actor("t1", "ann"))
    (event,) = store.audit.find(action="study.delete")
    assert (event.target, event.project, event.actor_name) == (study, "default", "ann")
    assert event.details == {"name": "small", "was": was}


def test_one_of_many_simultaneous_deletions_succeeds(store: Store) -> None:
    study = make(store)
    store.studies.intend(study, "cancel")

    def ask() -> str:
        try:
            store.deletions.request(study)
        except NotFound:
            return "gone"
        return "done"

    assert sorted(together([ask] * 4)) == ["done", "gone", "gone", "gone"]


def test_deleting_gives_no_gpu_hours_back(store: Store, clock: Clock) -> None:
    quota = Quota(gpu_hours=3)
    for number in (1, 2):
        study = finished(store, clock, gpus=0.5, seconds=7200.0)
        store.deletions.request(study)
        for _ in range(3):  # before, while and after its rows go
            assert store.quotas.get("default").use.gpu_hours == pytest.approx(number)
            store.deletions.purge(rows=1)
        while store.deletions.purge():
            pass
    finished(store, clock, gpus=0.5, seconds=7200.0)
    assert store.quotas.get("default").use.gpu_hours == pytest.approx(3.0)
    assert store.quotas.get("other").use.gpu_hours == 0
    with pytest.raises(QuotaExceeded, match="has 3 GPU-hours used"):
        store.studies.create(SPEC, "f" * 64, limits=quota)


def test_a_deleted_study_counts_in_no_quota(store: Store) -> None:
    quota = Quota(studies=1)
    study = store.studies.create(SPEC, "f" * 64, limits=quota).id
    store.studies.intend(study, "pause")
    store.deletions.request(study)
    assert (store.quotas.get("default").use.studies, store.quotas.get("default").use.trials) == (0, 0)
    store.studies.create(SPEC, "f" * 64, limits=quota)


def test_the_key_of_a_deleted_study_may_be_used_again(store: Store) -> None:
    first = make(store, key="k", request_hash="a")
    store.studies.intend(first, "cancel")
    store.deletions.request(first)
    second = make(store, key="k", request_hash="b")
    assert second != first
    with store.session.read() as connection:
        assert connection.execute(sa.select(IDEMPOTENCY_KEYS.c.study_id)).scalars().all() == [second]


def test_what_is_left_elsewhere_is_known_until_it_is_gone(store: Store, clock: Clock) -> None:
    recorded = finished(store, clock)
    plain = make(store)
    store.studies.intend(plain, "cancel")
    store.deletions.request(recorded)
    clock.now += 1
    store.deletions.request(plain)
    while store.deletions.purge():
        pass
    both = [Deletion(study, "small") for study in sorted((recorded, plain))]
    assert store.deletions.pending("files", 9) == both
    assert store.deletions.pending("files", 1) == both[:1]
    assert store.deletions.pending("mlflow", 9) == [Deletion(recorded, "small")]
    for _ in range(2):
        store.deletions.done(plain, "files")
    store.deletions.done(recorded, "files")
    assert store.deletions.pending("files", 9) == []
    assert store.deletions.pending("mlflow", 9) == [Deletion(recorded, "small")]
    store.deletions.done(recorded, "mlflow")
    with store.session.read() as connection:
        assert connection.execute(sa.select(DELETIONS)).all() == []


def test_finished_studies_are_kept_as_long_as_their_project_says(store: Store, clock: Clock) -> None:
    store.quotas.set("brief", Quota(retention_days=1.5))
    store.quotas.set("forever", Quota(studies=9))
    made = {}
    for project in ("brief", "forever", "other"):
        study = made[project] = make(store, project=project)
        store.studies.intend(study, "cancel")
    paused = make(store, project="brief")
    store.studies.intend(paused, "pause")
    running = make(store, project="brief")
    store.leases.acquire(running, "elsewhere/1")

    clock.now += 1.5 * DAY
    assert store.deletions.expire(Quota(retention_days=2), 9) == []
    clock.now += 1
    assert store.deletions.expire(Quota(retention_days=2), 9) == [made["brief"]]
    assert store.deletions.expire(Quota(retention_days=2), 9) == []
    clock.now += DAY
    assert store.deletions.expire(Quota(), 9) == []
    assert store.deletions.expire(Quota(retention_days=2), 9) == [made["other"]]
    clock.now += 1000 * DAY
    assert store.deletions.expire(Quota(), 9) == []
    assert {study.id for study in store.studies.find()} == {made["forever"], paused, running}
    events = store.audit.find(action="study.expire")
    assert [(event.target, event.actor_name) for event in events] == [(made["other"], ""), (made["brief"], "")]
    assert events[1].details == {"name": "small", "was": "CANCELLED", "retention_days": 1.5}


def test_a_study_that_goes_on_does_not_expire(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make(store)
    store.leases.acquire(study, "elsewhere/1")
    store.leases.release(study, 1, "FAILED", "no")
    clock.now += DAY
    locked = store.session.locked
    goes_on: list[str] = ["resume"]

    def resumed_before(connection: sa.Connection, study_id: str) -> sa.Row[Any]:
        row = locked(connection, study_id)
        if goes_on:
            goes_on.clear()
            store.session.move(connection, row, "PENDING")
        return locked(connection, study_id)

    monkeypatch.setattr(store.session, "locked", resumed_before)
    assert store.deletions.expire(Quota(retention_days=0.5), 9) == []
    assert store.studies.get(study).state == "PENDING"
    store.leases.acquire(study, "elsewhere/2")
    store.leases.release(study, 2, "FAILED", "no")
    clock.now += DAY / 4  # counted from its newest end
    assert store.deletions.expire(Quota(retention_days=0.5), 9) == []
    clock.now += DAY
    assert store.deletions.expire(Quota(retention_days=0.5), 9) == [study]


def test_an_archive_stays_as_long_as_a_study_needs_it(store: Store, clock: Clock) -> None:
    digest, other = "a" * 64, "b" * 64
    spec = {**SPEC, "program": {"archive": digest}}
    with pytest.raises(InvalidSpec, match=r"^program\.files: must be sent before the study, got aaa"):
        store.studies.create(spec, "f" * 64)
    assert store.studies.find() == []
    for project in ("default", "vision"):
        store.archives.put(project, digest, b"files", 7)
    with pytest.raises(QuotaExceeded, match="project default may have 7 bytes of packed files, and has 5 in"):
        store.archives.put("default", other, b"more", 7)
    store.archives.put("default", digest, b"files", 7)  # again: it is there
    first, second = (store.studies.create(spec, "f" * 64).id for _ in range(2))
    assert store.archives.of_study(second) == b"files"
    clock.now += 3601
    assert store.archives.remove_unused() == 1, "nobody has submitted a study of vision"
    for study in (first, second):
        assert store.archives.of_study(study) == b"files"
        store.studies.intend(study, "cancel")
        store.deletions.request(study)
        while store.deletions.purge():
            pass
    assert store.archives.remove_unused() == 1
    assert store.archives.remove_unused() == 0
