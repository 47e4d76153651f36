"""Events in the store; every test runs on SQLite and on PostgreSQL."""

from service.store.store import Store

from .store_setup import complete, driven, report


def test_events_tell_the_story_and_keep_one_progress(store: Store) -> None:
    study, attempt, trials = driven(store, 1)
    store.trials.start_pack(study, attempt, "p1", trials)
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
