"""A study that is given a larger budget is searched on: with a real store, real packs and no Ray."""

from pathlib import Path

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


def test_a_finished_study_is_searched_on(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic()
    study_id = client.submit(study)
    drive(client, study_id, study, tmp_path)
    before, stored = client.store.trials.find(study_id), curves(client, study_id)

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
    assert {trial.seed for trial in trials if trial.phase == "confirmation"} == {1, 2, 3}
    record = client.store.studies.get(study_id)
    assert (record.state, record.reason) == ("SUCCEEDED", "")
