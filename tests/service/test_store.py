"""The store as a whole, and its small parts: recorder state, locks, facts, events, plans; on SQLite and PostgreSQL."""

from functools import partial
from typing import Any

import pytest

from driftline.errors import InvalidSpec, NotFound
from driftline.wire.access import Quota
from driftline.wire.driver_messages import NewTrial
from driftline.wire.records import StudyPlan
from service.store.recorder_state import Recorded, Unrecorded
from service.store.store import Store
from tests.waiting import together

from .conftest import Clock, new_trials
from .store_setup import complete, driven, make, packed, report


def test_recorder_state(store: Store) -> None:
    study, other = make(store), make(store)
    store.recorder_state.write(study, Recorded("trial", "a", "run-1", 3, 10), Recorded("study", "", "run-0", 3))
    store.recorder_state.write(study, Recorded("trial", "a", "run-1", 5, 20))
    assert store.recorder_state.read(study) == [
        Recorded("study", "", "run-0", 3, 0),
        Recorded("trial", "a", "run-1", 5, 20),
    ]
    assert store.recorder_state.read(study, "study") == [Recorded("study", "", "run-0", 3, 0)]
    assert store.recorder_state.read(other) == []
    assert store.recorder_state.read(study, but="study") == [Recorded("trial", "a", "run-1", 5, 20)]
    store.recorder_state.clear(study, {"study"})
    assert store.recorder_state.read(study) == [Recorded("study", "", "run-0", 3, 0)]
    for change in (
        lambda: store.recorder_state.write("no", Recorded("study", "", "r")),
        lambda: store.recorder_state.clear("no", ()),
    ):
        with pytest.raises(NotFound):
            change()


def test_unrecorded_trials_run_or_ended_otherwise_than_recorded(store: Store) -> None:
    study, attempt, (first, second, _) = driven(store, 3)
    state = store.recorder_state
    assert state.unrecorded(study) == []
    store.trials.start_pack(study, attempt, "p1", [first, second])
    store.curves.report(study, report(attempt, first, range(4)))
    assert state.unrecorded(study) == [Unrecorded(first, False, 3, None), Unrecorded(second, False, 3, None)]
    store.trials.finish(study, attempt, [complete(first)])
    state.write(study, entry := Recorded("trial", first, "run-1", 0, 2))  # it ran when it was recorded
    assert state.unrecorded(study)[0] == Unrecorded(first, True, 3, entry)
    state.write(study, Recorded("trial", first, "run-1", store.trials.get(study, first).attempt, 3))
    assert [one.trial for one in state.unrecorded(study)] == [second]


def test_locks_expire_and_are_renewed(store: Store, clock: Clock) -> None:
    assert store.locks.take("scheduler", "a", 10)
    assert not store.locks.take("scheduler", "b", 10)
    assert store.locks.take("recorder", "b", 10)
    clock.now += 9
    assert store.locks.take("scheduler", "a", 10)
    clock.now += 9
    assert not store.locks.take("scheduler", "b", 10)
    store.locks.release("scheduler", "b")
    assert not store.locks.take("scheduler", "b", 10)
    store.locks.release("scheduler", "a")
    assert store.locks.take("scheduler", "b", 10)
    clock.now += 11
    assert store.locks.take("scheduler", "a", 10)


def test_facts_are_set_once_or_replaced(store: Store) -> None:
    assert store.facts.get("fingerprint") is None
    assert store.facts.setdefault("fingerprint", "abc") == "abc"
    assert store.facts.setdefault("fingerprint", "def") == "abc"
    assert store.facts.get("fingerprint") == "abc"
    store.facts.put("fingerprint", "new")
    assert store.facts.get("fingerprint") == "new"


def test_of_many_first_comers_one_is_first(store: Store) -> None:
    names = [f"first-comer-{number}" for number in range(6)]
    assert len(set(together([partial(store.facts.setdefault, "fingerprint", name) for name in names]))) == 1
    assert together([partial(store.locks.take, "scheduler", name, 10) for name in names]).count(True) == 1
    together([partial(store.quotas.set, "default", Quota(studies=number)) for number in range(1, 7)])
    assert store.quotas.get("default").own


def test_writers_of_one_study_take_their_turn(store: Store) -> None:
    study, attempt, trials = packed(store, 4)
    start = store.studies.get(study).version

    def write(trial: str) -> None:
        for last in range(10):
            store.curves.report(study, report(attempt, trial, range(last, last + 1)))

    together([partial(write, trial) for trial in trials])
    assert {len(columns["round"]) for columns in store.curves.columns(study).values()} == {10}
    assert store.studies.get(study).version == start + 40
    ids = [event.id for event in store.events.read(study)]
    assert ids == sorted(ids)


@pytest.mark.parametrize(
    "wrong",
    [{"number": 2**70, "configuration": 2**70}, {"seed": 2**70}, {"configuration": 2**70, "phase": "confirmation"}],
)
def test_what_a_database_cannot_hold_is_refused(store: Store, wrong: dict[str, Any]) -> None:
    study, attempt, _ = driven(store, 0)
    new = NewTrial.model_validate(new_trials("fedavg", 1)[0].model_dump() | wrong)
    with pytest.raises(InvalidSpec, match="the database cannot hold a value"):
        store.trials.create(study, attempt, [new])
    assert store.trials.find(study) == []


def test_events_tell_the_story_and_keep_one_progress(store: Store) -> None:
    study, attempt, trials = packed(store, 1)
    for last in range(1, 5):
        store.curves.report(study, report(attempt, trials[0], range(last + 1)))
    store.trials.finish(study, attempt, [complete(trials[0])])
    store.events.log(study, "info", "all is well")
    store.leases.release(study, attempt, "SUCCEEDED")
    events = store.events.read(study)
    assert [event.kind for event in events] == ["state", "state", "progress", "log", "state"]
    assert [event.data["state"] for event in events if event.kind == "state"] == ["PENDING", "RUNNING", "SUCCEEDED"]
    assert events[2].data["version"] == store.studies.get(study).version == 7
    assert events[2].data["progress"]["fedavg"]["search"] == {"COMPLETE": 1}  # type: ignore[index,call-overload]
    assert [event.id for event in events] == sorted({event.id for event in events})
    assert store.events.read(study, after=events[1].id, limit=2) == events[2:4]
    newest = events[-1].id
    assert store.events.newest(study, limit=9) == [event for event in events[::-1] if event.kind != "progress"]
    assert store.events.newest(study, before=newest, limit=2) == [events[3], events[1]]
    assert store.events.tail(study, after=events[1].id, limit=2) == ("SUCCEEDED", newest, events[2:4])
    assert (
        store.events.tail(study, after=newest, limit=2)
        == store.events.tail(study, after=2**62, limit=2)
        == ("SUCCEEDED", newest, [])
    )


def test_an_event_id_is_never_given_twice(store: Store) -> None:
    study, attempt, trials = driven(store, 1)
    newest = store.events.read(study)[-1].id
    store.trials.start_pack(study, attempt, "p1", trials)  # takes the place of the newest event
    assert store.events.read(study)[-1].id > newest


PLAN = StudyPlan(generation=8, width=4, confirmation_width=2)


def logged(store: Store, study: str) -> list[str]:
    return [str(event.data["message"]) for event in store.events.read(study) if event.kind == "log"]


def test_a_study_has_no_plan_until_its_driver_stores_one(store: Store) -> None:
    study = make(store)
    assert store.studies.get(study).plan is None
    attempt = store.leases.acquire(study, "host/1").attempt
    assert store.plans.put(study, attempt, PLAN) == PLAN
    record = store.studies.get(study)
    assert record.plan == PLAN
    assert store.plans.put(study, attempt, PLAN) == PLAN  # sent twice
    assert store.studies.get(study).version == record.version
    assert logged(store, study) == []


def test_a_changed_plan_is_an_event_and_keeps_what_was_said_before(store: Store) -> None:
    study = make(store)
    attempt = store.leases.acquire(study, "host/1").attempt
    first = store.plans.put(study, attempt, PLAN.model_copy(update={"exceptions": ["one"]}))
    narrower = PLAN.model_copy(update={"width": 2})
    for _ in range(2):
        changed = store.plans.put(study, attempt, narrower, "out of memory")
    assert changed == first.model_copy(update={"width": 2, "exceptions": ["one", "out of memory"]})
    assert store.studies.get(study).plan == changed
    assert logged(store, study) == ["out of memory"]
