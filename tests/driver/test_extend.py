"""A study that is given a larger budget is searched on: with a real store, real packs and no Ray."""

from pathlib import Path
from typing import Any

from driftline.study.spec import Study
from driftline.wire.budgets import Extension
from service.api.study_checks import check, extended
from tests.driver.store_client import StoreClient, quadratic
from tests.driver.test_search import Bench, curves


def extend(client: StoreClient, study_id: str, **more: int) -> Study:
    """What the API does with a request to extend."""
    was = client.store.studies.get(study_id)
    checked = check(extended(was.spec, Extension(**more)))
    client.store.studies.extend(study_id, checked.spec["budget"], checked.fingerprint, was=was.fingerprint)
    return Study.from_json(checked.spec)


def drive(client: StoreClient, study_id: str, study: Study, folder: Path) -> None:
    bench = Bench(client, study_id, study, folder)
    bench.run()
    assert bench.search.outcome() == ("SUCCEEDED", "")
    client.store.leases.release(study_id, bench.attempt, "SUCCEEDED")


def fronts(client: StoreClient, study_id: str) -> dict[str, list[tuple[Any, int]]]:
    trials = client.store.trials.find(study_id, phase="confirmation")
    labels = {trial.label for trial in trials}
    return {label: [(trial.configuration, trial.seed) for trial in trials if trial.label == label] for label in labels}


def test_a_finished_study_is_searched_on(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic()
    study_id = client.submit(study)
    drive(client, study_id, study, tmp_path)
    before, stored, made = client.store.trials.find(study_id), curves(client, study_id), fronts(client, study_id)

    larger = extend(client, study_id, trials_per_method=10, seeds=3)
    record = client.store.studies.get(study_id)
    assert (record.state, record.finished_at, record.fingerprint) == ("PENDING", None, larger.fingerprint())
    drive(client, study_id, larger, tmp_path)

    trials = client.store.trials.find(study_id)
    known = {trial.id: trial for trial in trials}
    assert all(known[trial.id] == trial for trial in before), "what was finished is final"
    again = curves(client, study_id)
    assert all(again[trial] == columns for trial, columns in stored.items())
    assert len([trial for trial in trials if trial.phase == "search"]) == 2 * 10
    repeated = fronts(client, study_id)
    assert {len(pairs) for pairs in repeated.values()} <= {2 * 3, 3 * 3, 4 * 3}
    assert len({len(pairs) for pairs in repeated.values()}) == 1
    for label, pairs in repeated.items():
        assert set(made[label]) <= set(pairs)
        assert {seed for _, seed in pairs} == {1, 2, 3}
        assert len(set(pairs)) == len(pairs)
    record = client.store.studies.get(study_id)
    assert (record.state, record.reason) == ("SUCCEEDED", "")


def test_the_settings_are_those_of_a_study_that_was_larger_from_the_start(client: StoreClient, tmp_path: Path) -> None:
    small = quadratic(budget={"trials_per_method": 3, "rounds": 10, "seeds": 0})
    study_id = client.submit(small)
    drive(client, study_id, small, tmp_path)
    drive(client, study_id, extend(client, study_id, trials_per_method=6), tmp_path)
    large = quadratic(budget={"trials_per_method": 6, "rounds": 10, "seeds": 0})
    other = client.submit(large)
    drive(client, other, large, tmp_path)

    def found(study: str) -> list[Any]:
        return [
            (trial.label, trial.number, trial.hyperparameters, trial.values)
            for trial in client.store.trials.find(study)
        ]

    assert found(study_id) == found(other)
    assert client.store.studies.get(study_id).fingerprint == client.store.studies.get(other).fingerprint


def test_a_study_extended_while_it_runs_goes_on_under_another_driver(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(budget={"trials_per_method": 2, "rounds": 10, "seeds": 0})
    study_id = client.submit(study)
    bench = Bench(client, study_id, study, tmp_path)
    bench.start()
    larger = extend(client, study_id, trials_per_method=4)
    assert client.store.studies.get(study_id).state == "RUNNING"
    bench.run()
    assert len(client.store.trials.find(study_id)) == 4
    assert client.store.leases.release(study_id, bench.attempt, "SUCCEEDED") == "PENDING"
    assert client.store.leases.release(study_id, bench.attempt, "SUCCEEDED") == "PENDING"  # sent twice
    assert client.store.studies.get(study_id).reason == "it was extended, and continues"
    drive(client, study_id, larger, tmp_path)
    assert len(client.store.trials.find(study_id)) == 8
    assert client.store.studies.get(study_id).state == "SUCCEEDED"
