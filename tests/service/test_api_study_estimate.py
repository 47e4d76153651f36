"""What a study will cost: its budget, times what earlier studies of the project measured; nothing is trained."""

from typing import Any

import pytest

from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import NewTrial, Report
from driftline.wire.ids import holder
from service.api import study_checks
from service.store.store import Store
from trainers.engine.packs.pack import Pack

from .api_setup import running
from .conftest import Clock
from .store_setup import complete

SPACE = {"client_lr": {"float": [0.01, 0.1]}, "server_lr": 1, "local_steps": {"choice": [2, 4]}}
POINTS: dict[str, Any] = {
    "name": "points",
    "task": {"name": "quadratic", "hessians": [[[1.0]], [[2.0]], [[3.0]]], "centers": [[0.0], [1.0], [2.0]]},
    "methods": [{"name": "fedavg", "space": SPACE}],
    "budget": {"trials_per_method": 8, "rounds": 5, "seeds": 2, "confirm": 3},
}
ROUNDS = (8 + 3 * 2) * 5
MEASURED = ("client_gradients", "bytes_up", "bytes_down", "seconds", "cpu_hours", "gpu_hours")


def with_space(**space: Any) -> dict[str, Any]:
    return POINTS | {"methods": [{"name": "fedavg", "space": SPACE | space}]}


def earlier(store: Store, clock: Clock, steps: tuple[int, ...] = (2, 4), **options: Any) -> str:
    """A study that ran: two packs at once for 20 s, each 5 rounds of one trial on half a GPU."""
    checked = study_checks.check(POINTS)
    study = store.studies.create(checked.spec, checked.fingerprint, **options).id
    store.leases.acquire(study, holder())
    new = [
        NewTrial(
            label="fedavg",
            phase="search",
            number=number,
            seed=0,
            configuration=number,
            hyperparameters={"local_steps": local},
        )
        for number, local in enumerate(steps)
    ]
    trials = [trial.id for trial in store.trials.create(study, 1, new)]
    for trial in trials:
        store.trials.start_pack(study, 1, trial, [trial], gpus=0.5)
    clock.now += 20
    for trial, local in zip(trials, steps, strict=True):
        rounds = list(range(6))
        columns: dict[str, list[Any]] = {
            "round": rounds,
            "client_gradients": [3 * local * number for number in rounds],
            "bytes_up": [24 * number for number in rounds],
            "bytes_down": [48 * number for number in rounds],
        }
        store.curves.report(study, Report(attempt=1, pack=trial, reports={trial: encode(columns)}, rounds_done=5))
    store.trials.finish(study, 1, [complete(trial) for trial in trials])
    return study


def estimate(store: Store, document: dict[str, Any], token: str = "all") -> dict[str, Any]:
    with running(store, check=study_checks.check) as service, service.client(token) as client:
        estimated = client.validate(document).estimate
        assert estimated is not None
        return estimated.model_dump(mode="json")


def test_without_earlier_studies_only_the_budget_is_known(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a pack was made in the API's process")

    monkeypatch.setattr(Pack, "from_spec", fail)
    document = POINTS | {"methods": [{"name": "fedavg", "space": SPACE}, {"name": "scaffold", "space": SPACE}]}
    found = estimate(sqlite_store, document)
    assert (found["trials"], found["rounds"]) == (2 * (8 + 3 * 2), 2 * ROUNDS)
    assert found["packs"] == 2 * (4 + 2 * 2)  # packs of 2
    assert [found[name] for name in (*MEASURED, "finish")] == [None] * 7
    why = "unknown, no earlier study of this project trained fedavg, scaffold on this task with the same local steps"
    for name in ("client_gradients", "bytes_up", "bytes_down", "time"):
        assert any(line.startswith(f"{name}: {why}") for line in found["rests_on"])


def test_an_earlier_study_of_the_project_is_what_it_rests_on(store: Store, clock: Clock) -> None:
    study = earlier(store, clock)
    found = estimate(store, with_space(client_lr={"float": [0.5, 1.0]}))  # a rate changes no work
    assert found["finish"] is not None
    store.leases.release(study, 1, "FAILED", "enough")
    found = estimate(store, with_space(client_lr={"float": [0.5, 1.0]}))
    assert found["client_gradients"] == ROUNDS * 9  # 3 clients, 2 and 4 steps: 3 on average
    assert (found["bytes_up"], found["bytes_down"]) == (ROUNDS * 24, ROUNDS * 48)
    assert found["seconds"] == pytest.approx(ROUNDS * 4 / 2)  # 20 s for 5 rounds of one trial, two packs at once
    assert found["cpu_hours"] == pytest.approx(ROUNDS * 4 / 3600)
    assert found["gpu_hours"] == pytest.approx(ROUNDS * 4 * 0.5 / 3600)
    assert found["finish"].startswith("2027-01-15T08:02:40")  # the clock's time, and 140 seconds
    for name in ("client_gradients", "bytes_up", "bytes_down"):
        assert f"{name}: per round as in earlier studies: {study}" in found["rests_on"]
    assert f"time: by the speed of earlier studies, with as many workers: {study}" in found["rests_on"]


def test_what_branches_share_is_not_taken_off(sqlite_store: Store) -> None:
    decay = {"name": "plateau", "space": {"window": {"int": [1, 3]}}}
    document = POINTS | {"methods": [{"name": "fedavg", "space": SPACE, "schedule": decay}]}
    said = "branches: client_gradients of each trial alone; time as earlier studies took, branches or not"
    assert said in estimate(sqlite_store, document | {"budget": {**POINTS["budget"], "branches": 2}})["rests_on"]
    assert said not in estimate(sqlite_store, document)["rests_on"]


def test_of_other_local_steps_only_the_traffic_is_known(store: Store, clock: Clock) -> None:
    earlier(store, clock)
    found = estimate(store, with_space(local_steps={"choice": [2, 8]}))
    assert [found[name] for name in MEASURED] == [None, ROUNDS * 24, ROUNDS * 48, None, None, None]


def test_without_different_local_steps_nothing_says_that_the_traffic_is_the_same(store: Store, clock: Clock) -> None:
    earlier(store, clock, steps=(2, 2))
    found = estimate(store, with_space(local_steps={"choice": [2, 8]}))
    assert [found[name] for name in MEASURED] == [None] * 6


@pytest.mark.parametrize(
    "change",
    [
        {"task": POINTS["task"] | {"centers": [[0.0], [1.0], [3.0]]}},
        {"clients_per_round": 2},
        {"methods": [{"label": "fedavg", "name": "fedprox", "space": SPACE | {"prox": 0.1}}]},
        {"methods": [{"name": "fedavg", "space": SPACE, "client": {"name": "adam"}}]},
    ],
)
def test_a_study_of_other_work_says_nothing(store: Store, clock: Clock, change: dict[str, Any]) -> None:
    earlier(store, clock)
    found = estimate(store, POINTS | change)
    assert [found[name] for name in MEASURED] == [None] * 6


def test_another_projects_study_says_nothing(store: Store, clock: Clock) -> None:
    earlier(store, clock)
    assert [estimate(store, POINTS, "stranger")[name] for name in MEASURED] == [None] * 6
