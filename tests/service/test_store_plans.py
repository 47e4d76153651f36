"""Plans of studies in the store."""

from driftline.wire.records import StudyPlan
from service.store.store import Store

from .conftest import SPEC

PLAN = StudyPlan(generation=8, width=4, confirmation_width=2)


def logged(store: Store, study: str) -> list[str]:
    return [str(event.data["message"]) for event in store.events.read(study) if event.kind == "log"]


def test_a_study_has_no_plan_until_its_driver_stores_one(store: Store) -> None:
    study = store.studies.create(SPEC, "f").id
    assert store.studies.get(study).plan is None
    attempt = store.leases.acquire(study, "host/1").attempt
    assert store.plans.put(study, attempt, PLAN) == PLAN
    record = store.studies.get(study)
    assert record.plan == PLAN
    assert store.plans.put(study, attempt, PLAN) == PLAN  # sent twice
    assert store.studies.get(study).version == record.version
    assert logged(store, study) == []


def test_a_changed_plan_is_an_event_and_keeps_what_was_said_before(store: Store) -> None:
    study = store.studies.create(SPEC, "f").id
    attempt = store.leases.acquire(study, "host/1").attempt
    first = store.plans.put(study, attempt, PLAN.model_copy(update={"exceptions": ["one"]}))
    narrower = PLAN.model_copy(update={"width": 2})
    for _ in range(2):
        changed = store.plans.put(study, attempt, narrower, "out of memory")
    assert changed == first.model_copy(update={"width": 2, "exceptions": ["one", "out of memory"]})
    assert store.studies.get(study).plan == changed
    assert logged(store, study) == ["out of memory"]
