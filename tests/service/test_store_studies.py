"""Studies in the store; every test runs on SQLite and on PostgreSQL."""

from datetime import UTC, datetime

import pytest

from driftline.errors import Conflict, InvalidSpec, NotFound
from service.store import stored_studies
from service.store.session import Actor
from service.store.store import Store
from tests.waiting import together

from .conftest import SPEC, Clock
from .store_setup import driven, make


def test_a_new_study_is_pending_with_its_spec_and_times(store: Store, clock: Clock) -> None:
    record = store.studies.create(SPEC, "f" * 64)
    assert (record.state, record.version, record.name, record.project) == ("PENDING", 0, "small", "default")
    assert record.spec == SPEC
    assert record.created_at == datetime.fromtimestamp(clock.now, UTC)
    assert store.studies.get(record.id) == record
    assert list(record.progress) == ["fedavg", "fedprox"]
    assert record.progress["fedavg"].rounds_total == (4 + 1 * 2) * 10


def test_a_page_of_long_studies_has_fewer(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for length in (10, 10, 5000, 10):
        clock.now += 1
        made.append(store.studies.create({**SPEC, "notes": "x" * length}, "f" * 64).id)
    monkeypatch.setattr(stored_studies, "PAGE_CHARACTERS", 2000)
    pages, before = [], None
    for _ in range(4):
        page, more = store.studies.page(project="default", before=before, most=3)
        pages.append([study.id for study in page])
        if not more:
            break
        before = page[-1].id
    assert pages == [[made[3]], [made[2]], [made[1], made[0]]]
    assert store.studies.page(most=3, before=made[0]) == ([], False)


def test_owners_are_named_from_the_audit_trail(store: Store, clock: Clock) -> None:
    ann, ben = Actor("t1", "ann"), Actor("t2", "ben")
    first = store.studies.create(SPEC, "f" * 64, actor=ann)
    clock.now += 24 * 3600
    second, nameless = store.studies.create(SPEC, "f" * 64, actor=ben), store.studies.create(SPEC, "f" * 64)
    store.studies.intend(first.id, "pause", actor=ben)  # not a submission
    assert store.audit.owners([first, nameless]) == {first.id: "ann"}
    assert store.audit.owners(store.studies.find()) == {first.id: "ann", second.id: "ben"}
    assert store.audit.owners([]) == {}
    (pause,) = store.audit.find(project="default", target=first.id, limit=1)
    assert (pause.action, pause.actor_name) == ("study.pause", "ben")
    assert [event.action for event in store.audit.find(target=second.id)] == ["study.submit"]


def test_studies_come_newest_first_by_project_and_in_pages(store: Store, clock: Clock) -> None:
    ids = []
    for number in range(5):
        clock.now += 1
        ids.append(store.studies.create(SPEC | {"name": f"s{number}"}, "f" * 64).id)
    other = make(store, project="other")
    assert [study.id for study in store.studies.page(project="default", most=9)[0]] == ids[::-1]
    assert [study.id for study in store.studies.page(project="default", before=ids[3], most=2)[0]] == [ids[2], ids[1]]
    assert [study.id for study in store.studies.page(project="other", most=9)[0]] == [other]
    assert len(store.studies.find()) == 6
    assert store.studies.get(other, project="other").id == other
    with pytest.raises(NotFound):
        store.studies.get(other, project="default")


def test_an_idempotency_key_gives_the_same_study(store: Store, clock: Clock) -> None:
    first = make(store, key="k", request_hash="a")
    assert make(store, key="k", request_hash="a") == first
    assert make(store, project="other", key="k", request_hash="b") != first
    with pytest.raises(InvalidSpec, match="another one; use a new key"):
        make(store, key="k", request_hash="b")
    assert len(store.studies.page(project="default", most=9)[0]) == 1
    clock.now += 8 * 24 * 3600
    assert make(store, key="k", request_hash="b") != first


def test_keys_that_have_expired_are_deleted_now_and_then(store: Store, clock: Clock) -> None:
    def known() -> list[str]:
        with store.session.read() as connection:
            return sorted(connection.exec_driver_sql("SELECT key FROM idempotency_keys").scalars())

    for key in "ab":
        make(store, key=key, request_hash="a")
    clock.now += 4 * 24 * 3600
    make(store, key="c", request_hash="a")
    clock.now += 4 * 24 * 3600
    make(store)
    assert known() == ["a", "b", "c"]
    make(store, key="d", request_hash="a")
    assert known() == ["c", "d"]


def test_keys_used_at_the_same_time_make_one_study(store: Store) -> None:
    made = together([lambda: make(store, key="k", request_hash="a")] * 6)
    assert len(set(made)) == len(store.studies.find()) == 1


@pytest.mark.parametrize(
    ("intents", "state"),
    [
        (["pause"], "PAUSED"),
        (["pause", "pause"], "PAUSED"),
        (["pause", "resume"], "PENDING"),
        (["resume"], "PENDING"),
        (["cancel"], "CANCELLED"),
        (["pause", "cancel", "cancel"], "CANCELLED"),
    ],
)
def test_wishes_without_a_driver_are_fulfilled_at_once(store: Store, intents: list[str], state: str) -> None:
    study = make(store)
    for intent in intents:
        record = store.studies.intend(study, intent)
    assert record.state == store.studies.get(study).state == state
    assert (record.finished_at is not None) == (state == "CANCELLED")


def test_wishes_with_a_driver_are_heard_by_its_heartbeat(store: Store) -> None:
    study, attempt, _ = driven(store)
    assert store.studies.get(study).state == "RUNNING"
    assert store.leases.heartbeat(study, attempt) == "run"
    assert store.studies.intend(study, "pause").state == "PAUSING"
    assert store.leases.heartbeat(study, attempt) == "pause"
    assert store.studies.intend(study, "resume").state == "RUNNING"
    assert store.leases.heartbeat(study, attempt) == "run"
    assert store.studies.intend(study, "cancel").state == "CANCELLING"
    assert store.leases.heartbeat(study, attempt) == "cancel"
    with pytest.raises(Conflict, match="pause needs a study that is pending"):
        store.studies.intend(study, "pause")


def test_other_resources_leave_the_rest_of_a_study_alone(store: Store) -> None:
    study = make(store)
    store.studies.set_resources(study, {"gpu": 0, "cpus": 2})
    assert store.studies.get(study).spec == SPEC | {"resources": {"gpu": 0, "cpus": 2}}
    assert store.studies.get(study).version == 0
