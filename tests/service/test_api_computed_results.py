"""Results of stored studies: the same from arrays as from lists, and pages of long curves."""

import json
import random
from contextlib import closing
from typing import Any

import pytest

from driftline.errors import NotFound
from driftline.results.study_result import study_result
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report, TrialResult
from driftline.wire.records import Values
from service.api.computed_results import computed_frontier, computed_page
from service.api.response_cache import Body
from service.api.result_process import ResultProcess
from service.api.routes import trials as routes
from service.child_process import ChildProcess
from service.store.store import Store

from .api_setup import running
from .conftest import SPEC, new_trials
from .store_setup import reach

ROUNDS = 600  # three segments


def stored(store: Store, seed: int, quality: str = "test_accuracy") -> str:
    """A study with trials of both phases and every end, evaluated now and then, with counters that begin late."""
    draw = random.Random(seed)
    spec = {**SPEC, "budget": {**SPEC["budget"], "rounds": ROUNDS}, "task": {"name": "digits"}}
    spec["objective"] = {**spec["objective"], "quality": quality}
    study = store.studies.create(spec, "f" * 64).id
    store.leases.acquire(study, "h/1")
    for label in ("fedavg", "fedprox"):
        new = [
            trial.model_copy(update={"phase": phase, "seed": trial.number % 3})
            for phase in ("search", "confirmation")
            for trial in new_trials(label, 6)
        ]
        ids = [trial.id for trial in store.trials.create(study, 1, new)]
        store.trials.start_pack(study, 1, label, ids)
        every = draw.choice([1, 1, 7])
        reports = {trial: encode(curve(draw, every)) for trial in ids}
        reach(store, study, ROUNDS)
        store.curves.report(study, Report(attempt=1, pack=label, reports=reports, rounds_done=ROUNDS))
        values = Values(quality=1.0, speed=1.0)
        ends = [TrialResult(trial=trial, state="COMPLETE", values=values) for trial in ids[1:-1]]
        store.trials.finish(study, 1, [*ends, TrialResult(trial=ids[0], state="DIVERGED")])
    return study


def curve(draw: random.Random, every: int) -> dict[str, list[Any]]:
    rounds = [number for number in range(ROUNDS) if draw.random() < 0.98 or number % 256 == 0]
    rate, end = draw.uniform(0.9, 0.999), draw.uniform(0.3, 0.9)
    late = draw.choice([0, 300])
    return {
        "round": rounds,
        "test_accuracy": [end * (1 - rate**r) + draw.gauss(0, 0.01) if r % every == 0 else None for r in rounds],
        "validation_accuracy": [0.8 * (1 - rate**r) + draw.gauss(0, 0.01) if r % every == 0 else None for r in rounds],
        "bytes_up": [1600 * r if r >= late else None for r in rounds],
        "bytes_down": [1600.5 * r for r in rounds],
        "client_gradients": [10 * r for r in rounds],
        "diverged": [draw.random() < 0.01 for _ in rounds],
    }


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("quality", ["test_accuracy", "validation_accuracy"])
def test_results_are_the_same_from_arrays_as_from_lists(sqlite_store: Store, seed: int, quality: str) -> None:
    store = sqlite_store
    study = stored(store, seed, quality)
    record, trials = store.studies.get(study), store.trials.find(study)
    lists = study_result(record, trials, store.curves.columns(study)).document
    assert lists["methods"]["fedavg"]["recommendations"]
    assert study_result(record, trials, store.curves.arrays(study)).document == lists
    assert computed_frontier(store, study) == lists
    by_bytes = study_result(record, trials, store.curves.columns(study), cost="bytes").document
    assert study_result(record, trials, store.curves.arrays(study), cost="bytes").document == by_bytes
    assert by_bytes != lists


@pytest.fixture
def address(sqlite_store: Store) -> str:
    return sqlite_store.session.database.url.render_as_string(hide_password=False)


def test_results_of_large_studies_are_the_same_from_a_process(sqlite_store: Store, address: str) -> None:
    study = stored(sqlite_store, 0)
    with closing(ResultProcess(sqlite_store, address, here_rounds=100)) as process:
        body = process.frontier(study)
        assert json.loads(body.raw) == json.loads(Body.json(computed_frontier(sqlite_store, study)))
        assert process.page(study) == computed_page(sqlite_store, study)
        with pytest.raises(NotFound):
            process.frontier("nobody")


def test_a_result_that_takes_too_much_memory_is_refused_at_once_from_then_on(
    sqlite_store: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = stored(sqlite_store, 0)
    with (
        closing(ResultProcess(sqlite_store, address, here_rounds=100, most_bytes=2**20)) as process,
        running(sqlite_store, frontier=process.frontier, page=process.page) as service,
        service.http() as http,
    ):
        for _ in range(2):
            answer = http.get(f"/v1/studies/{study}/frontier")
            assert answer.status_code == 503
            assert "at most 1 MiB of memory and 300 s in the API" in answer.json()["detail"]
            assert "give the API's container more memory, or compute it on your own" in answer.json()["detail"]
            monkeypatch.setattr(ChildProcess, "ask", None)  # not asked again
        assert http.get(f"/v1/studies/{study}").status_code == 200


def test_a_page_of_long_curves_has_fewer_trials(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study = stored(sqlite_store, 0)
    trials = [trial.id for trial in sqlite_store.trials.find(study)]
    path = f"/v1/studies/{study}/curves"
    with running(sqlite_store) as service, service.http() as http, service.client() as client:
        whole = http.get(path).json()
        assert whole == {"curves": sqlite_store.curves.columns(study, trials), "next_page_token": None}
        for most, held in ((5 * ROUNDS, 4), (10, 1)):
            monkeypatch.setattr(routes, "ROUNDS_A_PAGE", most)
            first = http.get(path, params={"page_size": 1000}).json()
            assert list(first["curves"]) == trials[:held]
            assert first["next_page_token"]
            assert client.curves(study) == whole["curves"]


def test_named_trials_come_in_pages_too(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study = stored(sqlite_store, 0)
    trials = [trial.id for trial in sqlite_store.trials.find(study)][:3]
    path = f"/v1/studies/{study}/curves"
    monkeypatch.setattr(routes, "ROUNDS_A_PAGE", 2 * ROUNDS + 2)
    with running(sqlite_store) as service, service.http() as http, service.client() as client:
        refused = http.get(path, params={"trial": trials})
        assert (refused.status_code, refused.json()["path"]) == (400, "trial")
        assert "page_size" in refused.json()["detail"]
        first = http.get(path, params={"trial": trials, "page_size": 10}).json()
        assert (list(first["curves"]), bool(first["next_page_token"])) == (trials[:2], True)
        assert client.curves(study, trials) == sqlite_store.curves.columns(study, trials)
        assert http.get(path, params={"trial": [*trials[:1], "x.fedavg.s0"]}).status_code == 404
