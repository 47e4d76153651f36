"""How a driver's life ends when Ray or the service is away; no Ray is started."""

import contextlib
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from driftline.errors import InvalidSpec, Unavailable
from driftline.wire.driver_messages import NewTrial
from service.driver.lifecycle import DriverOptions, run_driver
from service.driver.ray import cluster, tune
from service.driver.ray.capacity import Node
from service.driver.search.search import Search
from tests.driver.store_client import StoreClient, quadratic


def drive(client: StoreClient, folder: Path) -> tuple[str, Any]:
    """How a driver of a fresh study ends, and the study as the scheduler then sees it."""
    study_id = client.submit(quadratic())
    try:
        ended: str = run_driver(client, study_id, threading.Event(), DriverOptions(folder))
    except Unavailable as error:
        ended = f"lost: {error}"
    return ended, next(iter(client.store.leases.driven()), None) or client.store.studies.get(study_id)


def one_node(*_: Any, **__: Any) -> contextlib.nullcontext[cluster.Cluster]:
    """In the place of a connection to Ray."""
    return contextlib.nullcontext(cluster.Cluster(Path("unused"), own=True, _seen=(float("inf"), [Node(1)])))


def test_a_ray_that_does_not_start_is_tried_again_by_the_next_driver(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: Any) -> None:
        raise RuntimeError("The current node timed out during startup.")

    config = SimpleNamespace(initialize=lambda _: None)
    ray = SimpleNamespace(init=init, is_initialized=lambda: False, _raylet=SimpleNamespace(Config=config))
    monkeypatch.setattr(cluster, "_ray", lambda: ray)
    monkeypatch.setattr(cluster, "_connected", lambda: False)  # other tests of this folder may share a Ray
    ended, study = drive(client, tmp_path)
    assert ended.startswith("lost: Ray on this machine must start and answer, got RuntimeError: The current node timed")
    assert (study.state, study.attempt, study.held) == ("RUNNING", 1, True)  # until its process is gone
    assert client.store.leases.lost(study.id, 1, "its process has ended") == 1
    assert client.store.leases.acquire(study.id, "elsewhere/2").attempt == 2


def test_a_driver_older_than_the_api_leaves_the_study_to_the_next_driver(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = quadratic().to_json() | {"key_of_a_newer_version": 1}
    monkeypatch.setattr(client, "submit", lambda study: client.store.studies.create(newer, study.fingerprint()).id)
    ended, study = drive(client, tmp_path)
    assert ended.startswith("lost: this driver must be as new as the API that took the study, got key_of_a_newer")
    assert (study.state, study.attempt, study.held) == ("RUNNING", 1, True)


@pytest.mark.parametrize(
    ("error", "ended", "state"),
    [
        (Unavailable("the service is away"), "lost: the service is away", "RUNNING"),
        (InvalidSpec("", "it is wrong"), "FAILED", "FAILED"),
    ],
)
def test_a_service_that_stays_away_loses_the_driver_and_an_error_fails_the_study(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, ended: str, state: str
) -> None:
    def fit(search: Any, watch: Any, _: str) -> None:
        packs = tune.PackSearcher(search, watch)
        while packs.suggest("t1") != packs.FINISHED:
            pass

    def before(call: str) -> None:
        if call == "create_trials":
            raise error

    monkeypatch.setattr(cluster, "connect", one_node)
    monkeypatch.setattr(tune, "fit", fit)
    client.before = before
    found, study = drive(client, tmp_path)
    assert (found, study.state) == (ended, state)


def test_a_store_with_unfinished_trials_at_the_end_loses_the_driver(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup was restored after the driver had stored its last result: the next driver begins from its rows."""

    def restored(call: str) -> None:
        if call == "release":
            trial = NewTrial(label="short", phase="search", number=0, seed=0, configuration=0, hyperparameters={})
            client.store.trials.create(study_id, 1, [trial])

    monkeypatch.setattr(cluster, "connect", one_node)
    monkeypatch.setattr(Search, "complete", lambda self: True)
    client.before = restored
    study_id = client.submit(quadratic())
    with pytest.raises(Unavailable, match="1 unfinished"):
        run_driver(client, study_id, threading.Event(), DriverOptions(tmp_path))
    assert client.calls.count("release") == 1
    assert client.store.studies.get(study_id).state == "RUNNING", "until the scheduler sees that its driver was lost"


def test_the_driver_of_a_study_that_was_deleted_ends(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver hung until the scheduler gave up the study, and its owner deleted it."""

    def connect(study_id: str, *_: Any, **__: Any) -> Any:
        client.store.leases.lost(study_id, 1, "it hangs")
        client.store.leases.settle(study_id, "FAILED", "it hangs")
        client.store.deletions.request(study_id)
        raise InvalidSpec("", "it is wrong")

    monkeypatch.setattr(cluster, "connect", connect)
    study_id = client.submit(quadratic())
    assert run_driver(client, study_id, threading.Event(), DriverOptions(tmp_path)) == "STALE"
    assert client.store.studies.find() == []
