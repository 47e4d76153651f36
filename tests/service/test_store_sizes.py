"""Measured sizes of curves, on SQLite and PostgreSQL, and how large a store becomes."""

from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from service.store import sizes
from service.store.schema import CURVE_SEGMENTS
from service.store.store import Store

from .conftest import Clock
from .store_setup import driven, packed, report


def reported(store: Store, project: str, rounds: int, count: int = 2) -> tuple[str, list[str]]:
    """A study whose trials have reported `rounds` rounds each."""
    study, _, trials = packed(store, count, project=project)
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


@pytest.mark.slow
def test_a_hundred_curves_of_1500_rounds_stay_below_10_mb(tmp_path: Path) -> None:
    """Six metrics a round, as a real task reports them: losses and accuracies that carry noise, and counters."""
    trials, rounds = 100, 1500
    store = Store(tmp_path / "large.db")
    study, _, ids = driven(store, trials)
    rng = np.random.default_rng(0)
    number = np.arange(rounds)
    for start in range(0, trials, 10):
        pack = f"p{start}"
        some = ids[start : start + 10]
        store.trials.start_pack(study, 1, pack, some)
        for first in range(0, rounds, 300):
            part = number[first : first + 300]
            reports = {}
            for trial in some:
                loss = np.float32(2.3 / (1 + 0.01 * part) + 0.05 * rng.standard_normal(len(part)))
                columns = {
                    "round": part.tolist(),
                    "train_loss": loss.astype(float).tolist(),
                    "test_loss": (loss + np.float32(0.1)).astype(float).tolist(),
                    "test_accuracy": (rng.integers(0, 10_000, len(part)) / 10_000).tolist(),
                    "update_norm": np.float32(rng.lognormal(size=len(part))).astype(float).tolist(),
                    "bytes_up": (part * 104_000).tolist(),
                    "client_gradients": (part * 500).tolist(),
                }
                reports[trial] = encode(columns)
            last = int(part[-1])
            store.curves.report(study, Report(attempt=1, pack=pack, reports=reports, rounds_done=last))
    curve = store.curves.columns(study, ids[:1])[ids[0]]
    assert len(curve["round"]) == rounds
    store.close()
    size = sum(path.stat().st_size for path in tmp_path.glob("large.db*"))
    assert size < 10e6, f"{size / 1e6:.1f} MB"
