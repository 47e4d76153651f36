"""Measured sizes of curves, on SQLite and PostgreSQL."""

import sqlalchemy as sa

from service.store import sizes
from service.store.schema import CURVE_SEGMENTS
from service.store.store import Store

from .conftest import SPEC, Clock, new_trials
from .store_setup import report


def reported(store: Store, project: str, rounds: int, count: int = 2) -> tuple[str, list[str]]:
    """A study whose trials have reported `rounds` rounds each."""
    study = store.studies.create(SPEC, "f" * 64, project=project).id
    store.leases.acquire(study, "elsewhere/1")
    trials = [trial.id for trial in store.trials.create(study, 1, new_trials("fedavg", count))]
    store.trials.start_pack(study, 1, "p1", trials)
    for trial in trials:
        store.curves.report(study, report(1, trial, range(rounds)))
    return study, trials


def measure(store: Store) -> int:
    count = 0
    while store.sizes.measure():
        count += 1
    return count


def use(store: Store, project: str) -> tuple[int, int]:
    found = store.quotas.get(project).use
    return found.curve_rows, found.curve_bytes


def test_what_a_project_s_curves_take(store: Store) -> None:
    reported(store, "one", 257)
    reported(store, "one", 5, count=3)
    reported(store, "two", 256)
    assert use(store, "one") == (0, 0)  # not measured yet
    assert measure(store) == 3
    with store.session.read() as connection:
        payloads = connection.execute(sa.select(CURVE_SEGMENTS.c.payload)).scalars().all()
    assert [use(store, project)[0] for project in ("one", "two", "none")] == [2 * 2 + 3, 2, 0]
    assert use(store, "one")[1] + use(store, "two")[1] == sum(map(len, payloads)) > 0
    assert store.stats.overview().curves == (9, sum(map(len, payloads)))


def test_only_what_has_changed_is_measured_again_and_not_too_often(store: Store, clock: Clock) -> None:
    study, trials = reported(store, "one", 5)
    reported(store, "two", 5)
    assert (measure(store), measure(store)) == (2, 0)
    store.curves.report(study, report(1, trials[0], range(5, 300)))
    assert measure(store) == 0
    clock.now += sizes.EVERY_S + 1
    assert measure(store) == 1
    assert (use(store, "one")[0], use(store, "two")[0]) == (3, 2)
    clock.now += sizes.EVERY_S + 1
    assert measure(store) == 0


def test_all_studies_that_change_all_the_time_are_measured(store: Store, clock: Clock) -> None:
    studies = [reported(store, name, 5) for name in ("one", "two")]
    measure(store)
    for number in range(3):
        clock.now += sizes.EVERY_S + 1
        for study, trials in studies:
            store.curves.report(study, report(1, trials[0], range(5, 300 + 256 * number)))
        assert store.sizes.measure()
        assert store.sizes.measure()
        assert use(store, "one")[0] == use(store, "two")[0] == 3 + number


def test_deleted_studies_take_nothing(store: Store) -> None:
    study, _ = reported(store, "one", 5)
    measure(store)
    store.leases.release(study, 1, "FAILED", "no")
    store.deletions.request(study)
    assert use(store, "one") == (0, 0)
    assert measure(store) == 0
    assert store.stats.overview().curves == (0, 0)
