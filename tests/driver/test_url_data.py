"""Data at a URL on a service: read when the study starts, on a worker, and the same ever after."""

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from ray.exceptions import OutOfMemoryError, RayTaskError, WorkerCrashedError

from driftline.errors import DriftlineError, Unavailable
from driftline.study.spec import Study
from service.driver.lifecycle import DriverOptions, run_driver
from service.driver.ray import cluster, tune, url_data, url_fetch
from tests.driver.store_client import StoreClient
from tests.driver.test_search import Bench
from tests.faults import components
from tests.faults.fuse import Fuse
from tests.web_server import WebServer, serving
from trainers.data import remote


def table(rows: int) -> bytes:
    return "\n".join(["a,label,client", *(f"{n % 7},{n % 2},c{n % 3}" for n in range(rows))]).encode()


@pytest.fixture
def server() -> Iterator[WebServer]:
    with serving() as found:
        put(found, 30)
        yield found


def put(server: WebServer, rows: int) -> None:
    server.put("/sets/a.csv", table(rows), ETag=f'"{uuid.uuid4()}"')


def study_of(server: WebServer, **changes: Any) -> Study:
    document = {
        "name": "columns",
        "task": {"name": "data", "path": server.url("/sets/a.csv"), "inputs": ["a"], **changes.pop("task", {})},
        "methods": [
            {"name": "fedavg", "space": {"client_lr": {"float": [0.01, 0.1]}, "server_lr": 1, "local_steps": 2}}
        ],
        "budget": {"trials_per_method": 2, "rounds": 4, "seeds": 0},
        "resources": {"gpu": 0, "packs": 3},
        "sampler": "random",
    }
    return Study.from_json({**document, **changes})


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing is known of the data, here and before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remote._copied.cache_clear()
    yield
    remote._copied.cache_clear()


class Here:
    """Ray as far as it reads data, in this process; `test_ray.py` has them read on a worker."""

    def remote(self, **_: Any) -> Any:
        return lambda function: SimpleNamespace(remote=function)

    def wait(self, readings: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return readings, []

    def get(self, reading: Any) -> Any:
        return reading


@pytest.fixture
def driven(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fresh: None
) -> Callable[[str, str], tuple[str, str]]:
    """How a driver of a study ends that may read data below this URL, and why; it trains in this process."""
    monkeypatch.setattr(url_data, "ray", Here())
    monkeypatch.setattr(cluster, "connect", cluster.connect)  # put back afterwards
    monkeypatch.setattr(tune, "fit", tune.fit)
    components.without_ray(Fuse("driver", tmp_path, []), tmp_path)

    def drive(study_id: str, url: str) -> tuple[str, str]:
        monkeypatch.setattr(client, "data_urls", lambda _: [url], raising=False)
        ended = run_driver(client, study_id, threading.Event(), DriverOptions(tmp_path / "checkpoints"))
        return ended, client.store.studies.get(study_id).reason

    return drive


def test_the_data_of_the_first_reading_are_those_of_the_study(
    client: StoreClient, server: WebServer, driven: Callable[[str, str], tuple[str, str]]
) -> None:
    study, url = study_of(server), f"private:{server.url('/sets/')}"
    study_id = client.submit(study)
    assert driven(study_id, url) == ("SUCCEEDED", "")
    first = client.store.studies.get(study_id).plan.data
    assert len(first) == 64
    larger = study_of(server, budget={"trials_per_method": 3, "rounds": 4, "seeds": 0})
    client.store.studies.extend(study_id, larger.to_json()["budget"], larger.fingerprint(), was=study.fingerprint())
    put(server, 60)
    ended, reason = driven(study_id, url)
    assert ended == "FAILED"
    assert reason.startswith(f"task.path: must lead to data with the SHA-256 {first}, got ")
    assert reason.endswith(": they have changed, restore them or begin a new study")
    put(server, 30)
    client.resume(study_id)
    assert driven(study_id, url) == ("SUCCEEDED", "")
    assert len(client.store.trials.find(study_id)) == 3
    assert client.store.studies.get(study_id).plan.data == first


def test_what_is_not_allowed_is_not_read(
    client: StoreClient, server: WebServer, driven: Callable[[str, str], tuple[str, str]]
) -> None:
    study_id = client.submit(study_of(server))
    ended, reason = driven(study_id, server.url("/sets/"))
    assert ended == "FAILED"
    assert "must have a public address, got 127.0.0.1" in reason
    assert client.store.trials.find(study_id) == []
    assert server.asked == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": {"inputs": ["b"]}}, "task.inputs"),
        ({"objective": {"quality": "test_auc"}}, "objective.quality: must be a metric of task data"),
        ({"clients_per_round": 4}, "clients_per_round: must be at most 3, the clients of the task"),
        ({"task": {"sha256": "0" * 64}}, f"task.path: must lead to data with the SHA-256 {'0' * 64}, got "),
    ],
)
@pytest.mark.usefixtures("fresh")
def test_a_study_that_the_data_do_not_fit_is_refused(server: WebServer, changes: dict[str, Any], message: str) -> None:
    problem = url_data.read(study_of(server, **changes).to_json(), [f"private:{server.url('/sets/')}"])["problem"]
    assert problem["detail"].startswith(message)


@pytest.mark.usefixtures("fresh")
def test_a_worker_that_reads_other_data_ends_the_whole_study(
    client: StoreClient, server: WebServer, tmp_path: Path
) -> None:
    known = study_of(server, task={"sha256": "0" * 64})
    bench = Bench(client, client.submit(known), known, tmp_path, urls=[f"private:{server.url('/sets/')}"])
    assert bench.search.study_plan.data == "0" * 64
    pack = bench.begin()
    with pytest.raises(DriftlineError, match=r"^task.path must lead to data with the SHA-256 000.* they have changed"):
        bench.step(pack)


@pytest.mark.usefixtures("fresh")
def test_a_worker_reads_what_its_job_allows(client: StoreClient, server: WebServer, tmp_path: Path) -> None:
    study = study_of(server)
    bench = Bench(client, client.submit(study), study, tmp_path, urls=[])
    job = bench.search.next_job()
    worker = bench.kind.__new__(bench.kind)
    worker.take(job.config())
    report = json.loads(worker.step()["report"])
    assert "must begin with one of those that are allowed (none)" in report["error"]
    assert not report["ends"]
    assert server.asked == []


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (RayTaskError("read", "trace", ValueError("no such\nkey")), DriftlineError, r"ValueError: no such key$"),
        (OutOfMemoryError("the node is full"), DriftlineError, r"OutOfMemoryError: the node is full$"),
        (WorkerCrashedError(), Unavailable, r"^the worker that read the data at a URL was lost: WorkerCrashedError"),
    ],
)
def test_only_a_lost_worker_calls_for_another_driver(
    error: Exception, kind: type[DriftlineError], message: str, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = MagicMock()
    ray.wait.return_value = ([object()], [])
    ray.get.side_effect = error
    monkeypatch.setattr(url_data, "ray", ray)
    with pytest.raises(DriftlineError, match=message) as caught:
        url_data.examined(study_of(server), [], cpus=1, stopped=lambda: False, progress=lambda text: None)
    assert type(caught.value) is kind


@pytest.mark.usefixtures("fresh")
def test_a_worker_reports_while_it_fetches_and_can_be_stopped(
    client: StoreClient, server: WebServer, tmp_path: Path
) -> None:
    study, there, sent = study_of(server), server.answers["/sets/a.csv"], threading.Event()

    def slowly(handler: Any) -> None:
        sent.wait(60)
        there(handler)

    server.answers["/sets/a.csv"] = slowly
    prefixes = [f"private:{server.url('/sets/')}"]
    bench = Bench(client, client.submit(study), study, tmp_path, urls=prefixes, chunk_seconds=0.1)
    try:
        pack = bench.begin()
        for _ in range(2):
            waits = bench.step(pack)
            assert (waits["error"], waits["stopped"], waits["plan"]) == (None, False, None)
        bench.workers[pack].request_stop()
        assert bench.step(pack)["stopped"]
    finally:
        sent.set()
    bench.run()
    assert len(client.store.trials.find(bench.search._study_id)) == 2


@pytest.mark.usefixtures("fresh")
def test_a_server_may_be_away_for_a_moment(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_fetch, "PAUSES_S", (0.0, 0.0))
    there = server.answers.pop("/sets/a.csv")
    document, prefixes = study_of(server).to_json(), [f"private:{server.url('/sets/')}"]
    problem = url_data.read(document, prefixes)["problem"]
    assert "task.path: cannot read" in problem["detail"]
    assert "must answer 200, got 404" in problem["detail"]
    before = len(server.asked)
    monkeypatch.setattr(url_fetch.time, "sleep", lambda _: server.answers.update({"/sets/a.csv": there}))
    assert len(url_data.read(document, prefixes)["sha256"]) == 64
    assert len(server.asked) == before + 2
