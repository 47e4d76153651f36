"""Drivers in the store: leases, fencing, and how studies end; every test runs on SQLite and on PostgreSQL."""

from collections.abc import Callable
from typing import Any

import pytest

from driftline.errors import Conflict, StaleDriver
from driftline.wire.ids import holder
from driftline.wire.logs import NewLine, NewLines
from driftline.wire.records import StudyPlan
from service.store.local_processes import gone
from service.store.store import Store

from .conftest import Clock, new_trials
from .store_setup import ELSEWHERE, complete, driven, make, packed, report


def test_one_driver_at_a_time(store: Store, clock: Clock) -> None:
    study = make(store)
    lease = store.leases.acquire(study, ELSEWHERE)
    started_at = store.studies.get(study).started_at
    assert (lease.attempt, lease.lease_seconds) == (1, 30.0)
    clock.now += 29
    with pytest.raises(Conflict, match="attempt 1 of another-host/77 holds study"):
        store.leases.acquire(study, "third-host/1")
    store.leases.heartbeat(study, 1)
    clock.now += 29
    with pytest.raises(Conflict):
        store.leases.acquire(study, "third-host/1")
    clock.now += 1
    assert store.leases.acquire(study, "third-host/1").attempt == 2
    assert [(one.attempt, one.held, one.deaths) for one in store.leases.driven()] == [(2, True, 0)]
    assert started_at is not None
    assert store.studies.get(study).started_at == started_at  # of the first driver


def test_a_lease_is_kept_by_writing(store: Store, clock: Clock) -> None:
    study = make(store)
    store.leases.acquire(study, ELSEWHERE)
    for _ in range(4):
        clock.now += 20
        store.trials.create(study, 1, new_trials("fedavg", 1))
    assert store.leases.driven()[0].held


def test_the_same_holder_may_ask_again(store: Store) -> None:
    study = make(store)
    assert [store.leases.acquire(study, ELSEWHERE).attempt for _ in range(3)] == [1, 2, 3]
    assert store.leases.driven()[0].deaths == 0
    with pytest.raises(StaleDriver):
        store.leases.heartbeat(study, 2)


def test_a_dead_process_of_this_host_is_replaced_at_once(store: Store) -> None:
    study = make(store)
    store.leases.acquire(study, f"{holder().rpartition('/')[0]}/{2**22 + 1}")  # above any process id
    assert [(one.held, one.lost) for one in store.leases.driven()] == [(False, True)]
    assert store.leases.acquire(study, holder()).attempt == 2
    assert not gone(holder())
    assert not gone(ELSEWHERE)
    assert not gone("nonsense")


@pytest.mark.parametrize("restored", [False, True], ids=["replaced", "restored-backup"])
def test_every_write_of_a_stale_driver_is_refused(store: Store, clock: Clock, restored: bool) -> None:
    study, old, trials = driven(store)
    nonce = ""
    store.trials.start_pack(study, old, "p1", trials[:1])
    store.curves.report(study, report(old, trials[0], range(3), checkpoint="c1", plan={"width": 1}))
    clock.now += 31
    if restored:  # a backup from before the second attempt: its number is given out twice
        old, nonce = store.leases.acquire(study, "lost/1", "b" * 32).attempt, "b" * 32
        store.trials.start_pack(study, old, "p1", trials[:1], nonce=nonce)
        with store.session.write() as connection:
            store.session.update_driver(connection, study, attempt=1, nonce="a" * 32)
        clock.now += 31
    new = store.leases.acquire(study, ELSEWHERE, "c" * 32).attempt
    store.trials.start_pack(study, new, "p3", trials, nonce="c" * 32)
    before = (store.studies.get(study), store.trials.find(study), store.curves.columns(study), store.events.read(study))
    writes: list[Callable[[], object]] = [
        lambda: store.leases.heartbeat(study, old, nonce),
        lambda: store.plans.put(study, old, StudyPlan(generation=9, width=1, confirmation_width=1), nonce=nonce),
        lambda: store.trials.create(study, old, new_trials("fedavg", 9), nonce=nonce),
        lambda: store.trials.start_pack(study, old, "p2", trials, nonce=nonce),
        lambda: store.curves.report(study, report(old, trials[0], range(9), pack="p3"), nonce=nonce),
        lambda: store.trials.finish(study, old, [complete(trials[0])], nonce=nonce),
        lambda: store.leases.release(study, old, "FAILED", nonce=nonce),
    ]
    why = "another driver's: a backup was restored" if restored else "attempt 2 does"
    for write in writes:
        with pytest.raises(StaleDriver, match=f"{why}; stop this driver"):
            write()
    assert (
        store.studies.get(study),
        store.trials.find(study),
        store.curves.columns(study),
        store.events.read(study),
    ) == before
    assert (old, new) == (2 if restored else 1, 2)
    assert store.leases.heartbeat(study, new, "c" * 32) == "run"
    store.trials.finish(study, new, [complete(trial) for trial in trials], nonce="c" * 32)
    store.leases.release(study, new, "SUCCEEDED", nonce="c" * 32)
    with pytest.raises(StaleDriver):
        store.leases.release(study, old, "SUCCEEDED", nonce=nonce)  # not taken for a repetition
    late = NewLines(attempt=old, lines=[NewLine(at=1.8e9, text="late")])
    with pytest.raises(StaleDriver):
        store.logs.write(study, late, nonce=nonce)


def test_a_takeover_keeps_what_trials_have_done(store: Store, clock: Clock) -> None:
    study, attempt, trials = packed(store)
    store.curves.report(study, report(attempt, trials[0], range(4), checkpoint="c1", plan={"width": 2}))
    store.trials.finish(study, attempt, [complete(trials[1])])
    clock.now += 31
    store.leases.acquire(study, ELSEWHERE)
    first, second = store.trials.find(study)
    assert (first.state, first.rounds_done, first.checkpoint, first.plan) == ("WAITING", 3, "c1", {"width": 2})
    assert (first.attempt, second.state) == (1, "COMPLETE")
    assert store.curves.columns(study, [first.id])[first.id]["round"] == [0, 1, 2, 3]


@pytest.mark.parametrize("state", ["PAUSED", "CANCELLED", "FAILED", "SUCCEEDED"])
def test_a_release_says_how_the_study_ended(store: Store, state: Any) -> None:
    study, attempt, trials = packed(store)
    if state == "PAUSED":
        store.studies.intend(study, "pause")
    if state == "CANCELLED":
        store.studies.intend(study, "cancel")
    if state == "SUCCEEDED":
        store.trials.finish(study, attempt, [complete(trial) for trial in trials])
    assert store.leases.release(study, attempt, state, "so it is") == state
    assert store.leases.release(study, attempt, state, "so it is") == state  # sent twice
    record = store.studies.get(study)
    assert (record.state, record.reason) == (state, "so it is")
    states = {"PAUSED": "WAITING", "FAILED": "WAITING", "CANCELLED": "CANCELLED", "SUCCEEDED": "COMPLETE"}
    assert {trial.state for trial in store.trials.find(study)} == {states[state]}
    with pytest.raises(StaleDriver):
        store.leases.heartbeat(study, attempt)
    if state != "PAUSED":
        with pytest.raises(Conflict, match="needs no driver"):
            store.leases.acquire(study, holder())


def test_a_study_succeeds_only_when_all_trials_are_finished(store: Store) -> None:
    study, attempt, trials = driven(store)
    store.trials.finish(study, attempt, [complete(trials[0])])
    with pytest.raises(Conflict, match="got 1 unfinished"):
        store.leases.release(study, attempt, "SUCCEEDED")
    assert store.studies.get(study).state == "RUNNING"


def test_a_pause_that_nobody_wanted_is_started_again(store: Store) -> None:
    study, attempt, _ = driven(store)
    assert store.leases.release(study, attempt, "PAUSED", "its machine goes away") == "PENDING"
    assert store.leases.acquire(study, holder()).attempt == 2


def test_only_the_owner_cancels(store: Store) -> None:
    study, attempt, _ = driven(store)
    with pytest.raises(Conflict, match="only its owner cancels"):
        store.leases.release(study, attempt, "CANCELLED")


def test_a_failed_study_may_be_resumed(store: Store) -> None:
    study, attempt, _ = driven(store)
    store.leases.release(study, attempt, "FAILED", "no GPU")
    assert store.studies.get(study).finished_at is not None
    record = store.studies.intend(study, "resume")
    assert (record.state, record.reason, record.finished_at) == ("PENDING", "", None)


def test_lost_drivers_are_counted_until_a_trial_finishes(store: Store) -> None:
    study, attempt, trials = driven(store)
    assert store.leases.lost(study, attempt, "killed") == 1
    assert store.leases.lost(study, attempt, "killed") == 1  # seen twice
    attempt = store.leases.acquire(study, holder()).attempt
    assert store.leases.lost(study, attempt, "the machine was restarted", counted=False) == 1
    assert {trial.state for trial in store.trials.find(study)} == {"WAITING"}
    with pytest.raises(StaleDriver):
        store.leases.heartbeat(study, attempt)
    attempt = store.leases.acquire(study, holder()).attempt
    assert store.leases.lost(study, attempt, "killed") == 2
    attempt = store.leases.acquire(study, holder()).attempt
    store.trials.finish(study, attempt, [complete(trials[0])])
    assert store.leases.driven()[0].deaths == 0
    assert store.leases.lost(study, attempt, "killed") == 1


def test_drivers_are_lost_any_number_of_times_as_long_as_each_writes_a_checkpoint(store: Store) -> None:
    """A trial that takes longer than its machines live; its driver trains on from the last checkpoint."""
    study, _, (trial, _) = driven(store)
    for number in range(1, 6):
        attempt = store.leases.acquire(study, holder()).attempt
        store.trials.start_pack(study, attempt, f"p{number}", [trial])
        rounds = range(10 * number - 10, 10 * number)
        written = f"file:///c{rounds[-1]}"
        store.curves.report(study, report(attempt, trial, rounds, pack=f"p{number}", checkpoint=written))
        assert store.leases.lost(study, attempt, "preempted") == 1
    attempt = store.leases.acquire(study, holder()).attempt
    store.trials.start_pack(study, attempt, "p6", [trial])
    store.curves.report(study, report(attempt, trial, range(50, 60), pack="p6", checkpoint=written))  # was restored
    assert store.leases.lost(study, attempt, "preempted") == 2


def test_drivers_whose_trials_begin_anew_each_time_are_counted(store: Store) -> None:
    """Their checkpoints are lost with them: another one of the same rounds is no progress."""
    study, _, (trial, _) = driven(store)
    for number in range(1, 4):
        attempt = store.leases.acquire(study, holder()).attempt
        store.trials.start_pack(study, attempt, f"p{number}", [trial])
        for rounds, written in ((range(5), None), (range(5, 10), f"file:///{number}.c5")):
            store.curves.report(study, report(attempt, trial, rounds, pack=f"p{number}", checkpoint=written))
        assert store.leases.lost(study, attempt, "out of memory") == number


def test_a_driver_that_never_came_is_counted(store: Store) -> None:
    study = make(store)
    assert [store.leases.lost(study, 0, "no such program", early=True) for _ in range(2)] == [1, 2]
    assert store.leases.acquire(study, holder()).attempt == 1
    assert store.leases.lost(study, 0, "no such program", early=True) == 2  # of the time before
    assert store.leases.heartbeat(study, 1) == "run"
    assert store.leases.driven()[0].deaths == 2
    store.leases.lost(study, 1, "again")
    store.leases.settle(study, "FAILED", "three drivers were lost")
    assert store.studies.get(study).state == "FAILED"
    assert store.studies.intend(study, "resume").state == "PENDING"
    assert store.leases.driven()[0].deaths == 0


def test_a_study_that_is_held_is_settled_by_its_driver_alone(store: Store, clock: Clock) -> None:
    study, attempt, _ = driven(store)
    store.studies.intend(study, "pause")
    with pytest.raises(Conflict, match=f"attempt {attempt} holds"):
        store.leases.settle(study, "PAUSED")
    clock.now += 31
    store.leases.settle(study, "PAUSED")
    assert store.studies.get(study).state == "PAUSED"
    with pytest.raises(StaleDriver):
        store.leases.heartbeat(study, attempt)


def test_reasons_may_quote_anything(store: Store) -> None:
    """The end of a log after a power failure is often NUL; messages of exceptions may hold undecoded bytes."""
    study, attempt, _ = driven(store)
    said = "the log ends with 'a\x00b \ud800'"
    store.leases.note(study, attempt, said)
    assert store.studies.get(study).reason == "the log ends with 'a\ufffdb ?'"
    assert store.leases.lost(study, attempt, said) == 1
    store.leases.settle(study, "FAILED", said)
    state = store.studies.get(study)
    assert (state.state, state.reason) == ("FAILED", "the log ends with 'a\ufffdb ?'")
    assert all("\\u0000" not in event.model_dump_json() for event in store.events.read(study))
