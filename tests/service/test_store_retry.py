"""FAILED trials that run again, and deaths that are stored; every test runs on SQLite and on PostgreSQL."""

from typing import Any

import pytest

from driftline.errors import Conflict, InvalidSpec, NotFound, QuotaExceeded, StaleDriver
from driftline.wire.access import Quota
from driftline.wire.driver_messages import TrialResult
from service.store.session import Actor
from service.store.store import Store

from .store_setup import bring, complete, make, packed, report

ANN = Actor("t1", "ann")
DEAD = "its worker died"


def failed(trial: str, error: str = DEAD) -> TrialResult:
    return TrialResult(trial=trial, state="FAILED", error=error, deaths=3, death_round=5)


def mixed(store: Store) -> tuple[str, int, list[str]]:
    """A study with a driver, two FAILED trials and two that went well."""
    study, attempt, trials = packed(store, 4)
    store.curves.report(
        study, report(attempt, trials[0], range(8), checkpoint="pack.1f.00000005.ckpt", plan={"oracle": "x"})
    )
    results = [failed(trials[0]), failed(trials[1], "out of memory"), complete(trials[2])]
    store.trials.finish(study, attempt, [*results, TrialResult(trial=trials[3], state="DIVERGED")])
    return study, attempt, trials


def said(store: Store, study: str) -> list[Any]:
    return [event.data["message"] for event in store.events.read(study) if event.kind == "log"]


def test_deaths_are_stored_and_kept_until_others_are_told(store: Store) -> None:
    study, attempt, (trial, _) = packed(store)
    store.trials.finish(study, attempt, [TrialResult(trial=trial, state="WAITING", deaths=1, death_round=0)])
    store.trials.start_pack(study, attempt, "p2", [trial])
    store.trials.finish(study, attempt, [TrialResult(trial=trial, state="WAITING")])  # told to stop
    first, second = store.trials.find(study)
    assert (first.deaths, first.death_round) == (1, 0)
    assert (second.deaths, second.death_round) == (0, None)
    store.leases.release(study, attempt, "PAUSED")
    attempt = store.leases.acquire(study, "h/2").attempt
    store.trials.start_pack(study, attempt, "p3", [trial])
    again = TrialResult(trial=trial, state="WAITING", deaths=2, death_round=7)
    version = store.trials.finish(study, attempt, [again])
    assert store.trials.finish(study, attempt, [again]) == version
    assert (store.trials.get(study, trial).deaths, store.trials.get(study, trial).death_round) == (2, 7)


def test_failed_trials_wait_again(store: Store) -> None:
    study, attempt, trials = mixed(store)
    store.leases.release(study, attempt, "SUCCEEDED", "2 of 4 trials have failed")
    before = store.trials.find(study)
    ended = store.studies.get(study)
    after = store.retries.request(study, actor=ANN)
    assert after == store.studies.get(study)
    assert (after.state, after.reason, after.finished_at) == ("PENDING", "", None)
    assert after.version == ended.version + 1
    assert after.progress["fedavg"].search == {"WAITING": 2, "COMPLETE": 1, "DIVERGED": 1}
    first, second, *others = store.trials.find(study)
    for trial in (first, second):
        assert (trial.state, trial.error, trial.deaths, trial.death_round) == ("WAITING", None, 0, None)
        assert (trial.attempt, trial.pack, trial.plan, trial.rounds_done) == (1, "p1", {"oracle": "x"}, 7)
    assert others == before[2:]
    assert store.curves.columns(study)[trials[0]]["round"] == list(range(8))
    assert said(store, study) == [
        f"retried fedavg.s00000, which had failed: {DEAD}",
        "retried fedavg.s00001, which had failed: out of memory",
    ]
    (audit,) = store.audit.find(action="study.retry")
    assert (audit.actor_name, audit.target, audit.details) == ("ann", study, {"was": "SUCCEEDED", "trials": 2})
    attempt = store.leases.acquire(study, "h/2").attempt
    assert [trial.attempt for trial in store.trials.start_pack(study, attempt, "p2", trials[:2])] == [2, 2]
    store.trials.finish(study, attempt, [complete(trial) for trial in trials[:2]])
    assert store.leases.release(study, attempt, "SUCCEEDED") == "SUCCEEDED"


def test_trials_that_are_named(store: Store) -> None:
    study, _, trials = mixed(store)
    for wrong in (trials[:3], trials[3:]):
        with pytest.raises(Conflict, match=r"only failed trials are retried, got a (complete|diverged) one: .*s0000"):
            store.retries.request(study, wrong)
    with pytest.raises(NotFound, match='has no trial "x"'):
        store.retries.request(study, [trials[0], "x"])
    assert [trial.state for trial in store.trials.find(study)] == ["FAILED", "FAILED", "COMPLETE", "DIVERGED"]
    store.retries.request(study, [trials[1], trials[1]])
    assert [trial.state for trial in store.trials.find(study)] == ["FAILED", "WAITING", "COMPLETE", "DIVERGED"]
    assert said(store, study) == ["retried fedavg.s00001, which had failed: out of memory"]


@pytest.mark.parametrize("state", ["RUNNING", "PAUSING", "PAUSED", "SUCCEEDED", "FAILED", "CANCELLING", "CANCELLED"])
def test_what_becomes_of_the_study(store: Store, state: Any) -> None:
    study, _, _ = mixed(store)
    bring(store, study, state)
    before = store.studies.get(study)
    assert before.state == state
    if state in ("CANCELLED", "CANCELLING"):
        with pytest.raises(Conflict, match=f"retry needs a study that is .*, got a {state.lower()} one"):
            store.retries.request(study)
        assert store.studies.get(study) == before
        return
    assert store.retries.request(study).state == {"SUCCEEDED": "PENDING", "FAILED": "PENDING"}.get(state, state)
    with pytest.raises(Conflict, match=f"no trial of study {study} has failed: there is nothing to retry"):
        store.retries.request(study)


def test_a_driver_leaves_retried_trials_to_the_next_one(store: Store) -> None:
    study, attempt, trials = mixed(store)
    store.retries.request(study, trials[:1])
    with pytest.raises(Conflict, match="final"):
        store.trials.finish(study, attempt, [TrialResult(trial=trials[1], state="WAITING")])  # a driver retries nothing
    assert [store.leases.release(study, attempt, "SUCCEEDED") for _ in range(2)] == ["PENDING", "PENDING"]
    assert store.studies.get(study).reason == "it has trials to retry, and continues"
    attempt = store.leases.acquire(study, "h/2").attempt
    with pytest.raises(Conflict, match="got 1 unfinished"):
        store.leases.release(study, attempt, "SUCCEEDED")
    store.trials.start_pack(study, attempt, "p2", trials[:1])
    store.trials.finish(study, attempt, [complete(trials[0])])
    assert store.leases.release(study, attempt, "SUCCEEDED", "1 of 4 trials have failed") == "SUCCEEDED"


def test_a_result_that_is_sent_again_does_not_undo_a_retry(store: Store) -> None:
    study, attempt, trials = mixed(store)
    store.retries.request(study, trials[:1])
    store.trials.finish(study, attempt, [failed(trials[0])])  # the driver has not heard the answer
    assert store.trials.get(study, trials[0]).state == "WAITING"
    store.leases.release(study, attempt, "SUCCEEDED")
    attempt = store.leases.acquire(study, "h/2").attempt
    store.trials.finish(study, attempt, [failed(trials[0])])
    assert store.trials.get(study, trials[0]).state == "FAILED"


def test_a_driver_that_dies_after_a_retry_counts_from_zero(store: Store) -> None:
    study, attempt, _ = mixed(store)
    store.leases.lost(study, attempt, "a test")
    store.leases.settle(study, "FAILED", "three drivers were lost")
    assert store.retries.request(study).state == "PENDING"
    assert [one.deaths for one in store.leases.driven()] == [0]
    with pytest.raises(StaleDriver):
        store.leases.heartbeat(study, attempt)


def test_a_key_stands_for_one_retry(store: Store) -> None:
    study, attempt, trials = mixed(store)
    options: dict[str, Any] = {"key": "k", "request_hash": "a" * 64}
    first = store.retries.request(study, **options)
    assert store.retries.request(study, **options) == first  # as from a client that has not heard the answer
    with pytest.raises(InvalidSpec, match="a key stands for one request"):
        store.retries.request(study, trials[:1], key="k", request_hash="b" * 64)
    with pytest.raises(InvalidSpec, match="a key stands for one request"):
        make(store, key="k", request_hash="c" * 64)
    store.trials.start_pack(study, attempt, "p2", trials[:1])
    store.trials.finish(study, attempt, [failed(trials[0])])
    assert store.retries.request(study, **options).progress["fedavg"].search["FAILED"] == 1  # that was another failure
    assert store.retries.request(study, key="k2").progress["fedavg"].search["WAITING"] == 2
    assert len(store.audit.find(action="study.retry")) == 2


def test_a_finished_study_is_retried_within_the_quota(store: Store) -> None:
    study, attempt, _ = mixed(store)
    store.leases.release(study, attempt, "FAILED")
    before = store.trials.find(study)
    with pytest.raises(QuotaExceeded):
        store.retries.request(study, limits=Quota(trials=1))
    assert store.trials.find(study) == before
    assert store.studies.get(study).state == "FAILED"
    assert store.retries.request(study, limits=Quota(trials=100)).state == "PENDING"
