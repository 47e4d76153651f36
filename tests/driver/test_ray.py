"""Drivers on a real Ray: whole studies, killed workers, stops and resumes."""

import os
import signal
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import Conflict
from service.driver.lifecycle import DriverOptions, run_driver
from service.driver.ray import mutex
from service.driver.search.search import Search
from tests.driver.store_client import StoreClient, quadratic
from tests.driver.test_url_data import put, study_of
from tests.uninterrupted import in_one_go, plain
from tests.waiting import until
from tests.web_server import serving

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_started"), pytest.mark.timeout(400)]

CALM = {"client_lr": {"float": [1e-3, 1e-2]}, "server_lr": {"float": [1e-3, 1e-2]}, "local_steps": {"int": [1, 5]}}
LONG = {
    "methods": [{"label": label, "name": "fedavg", "space": CALM} for label in ("one", "other")],
    "task": {"name": "quadratic", "problem": "continuum", "clients": 50},
    "budget": {"trials_per_method": 4, "rounds": 600, "seeds": 0},
    "resources": {"gpu": 0, "packs": 2},
    "clients_per_round": 5,
}
QUICK = {"chunk_seconds": 0.1, "checkpoint_seconds": 0.1}


def curves(client: StoreClient, study_id: str) -> dict[str, Any]:
    """Curves without what no two runs share, by the trial's name within its study."""
    found = client.store.curves.columns(study_id)
    return {trial.partition(".")[2]: plain(columns) for trial, columns in found.items()}


@cache
def uninterrupted() -> dict[str, Any]:
    """The curves of the long study, trained in this process, each pack in one go."""
    study = quadratic(**LONG)
    return {
        f"{label}.s{first + member:05d}": curve
        for label in study.labels
        for first in (0, 2)
        for member, curve in enumerate(in_one_go(study, label, first, 2))
    }


class Driven(threading.Thread):
    """A driver in a thread, as the embedded service runs it."""

    def __init__(self, client: StoreClient, study_id: str, folder: Path, **options: Any) -> None:
        super().__init__(daemon=True)
        self.ended: Any = None
        self._arguments = (client, study_id, threading.Event(), DriverOptions(folder, **{**QUICK, **options}))
        self.start()

    def run(self) -> None:
        try:
            self.ended = run_driver(*self._arguments)
        except Exception as error:
            self.ended = error

    def end(self) -> Any:
        self.join(300)
        assert not self.is_alive()
        return self.ended


def test_a_killed_worker_costs_no_result_and_nothing_counts_twice(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_id = client.submit(quadratic(**LONG))
    pids: list[int] = []
    take = Search.report

    def spy(search: Search, report: Mapping[str, Any]) -> None:
        take(search, report)
        if report["checkpoint"] and not report["done"] and not pids:
            pids.append(report["pid"])
            os.kill(report["pid"], signal.SIGKILL)

    monkeypatch.setattr(Search, "report", spy)
    assert Driven(client, study_id, tmp_path, chunk_seconds=0.02, checkpoint_seconds=0.0).end() == "SUCCEEDED"
    assert pids
    trials = client.store.trials.find(study_id)
    assert [trial.state for trial in trials] == ["COMPLETE"] * 8
    assert sorted(trial.attempt for trial in trials) == [1] * 6 + [2] * 2
    assert len(client.finished) == len({result.trial for result in client.finished}) == 8
    assert curves(client, study_id) == uninterrupted()


def test_a_paused_study_resumes_with_the_same_curves(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "heartbeat", lambda *_: "run")  # the answer to the report brings the wish
    study_id = client.submit(quadratic(**LONG))

    def pause_at_the_first_report(call: str) -> None:
        if call == "report" and client.calls.count("report") == 1:
            client.pause(study_id)

    client.before = pause_at_the_first_report
    assert Driven(client, study_id, tmp_path).end() == "PAUSED"
    assert client.store.studies.get(study_id).state == "PAUSED"
    begun = [trial for trial in client.store.trials.find(study_id) if trial.rounds_done]
    assert begun
    assert {trial.state for trial in client.store.trials.find(study_id)} <= {"WAITING", "COMPLETE"}
    assert all(trial.checkpoint for trial in begun if trial.state == "WAITING")
    client.resume(study_id)
    done = {trial.id for trial in begun if trial.finished}
    assert Driven(client, study_id, tmp_path).end() == "SUCCEEDED"
    assert len(client.finished) == len({result.trial for result in client.finished}) == 8
    assert done < {result.trial for result in client.finished}
    assert curves(client, study_id) == uninterrupted()


def test_one_study_at_a_time_uses_a_ray_and_is_cancelled_at_once(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(**{**LONG, "budget": {"trials_per_method": 4, "rounds": 400_000, "seeds": 0}})
    first, second = client.submit(study), client.submit(study)
    driven = Driven(client, first, tmp_path)
    until(lambda: any(trial.checkpoint for trial in client.store.trials.find(first)))
    assert Driven(client, second, tmp_path).end() == "FAILED"
    assert "one study at a time uses a Ray cluster" in client.store.studies.get(second).reason
    client.cancel(first)
    assert driven.end() == "CANCELLED"
    assert {trial.state for trial in client.store.trials.find(first)} == {"CANCELLED"}
    assert not list(tmp_path.rglob("*.ckpt"))
    assert isinstance(Driven(client, first, tmp_path).end(), Conflict)


def test_resources_that_no_node_has_are_refused_before_anything_runs(client: StoreClient, tmp_path: Path) -> None:
    study_id = client.submit(quadratic(resources={"gpu": 3}))
    assert Driven(client, study_id, tmp_path, nodes_s=0.0).end() == "FAILED"
    reason = "resources.gpu: a pack needs 1 CPU and 3 GPU on one node, the nodes have 2 CPU: ask for less"
    assert client.store.studies.get(study_id).reason == reason


def test_a_replaced_driver_stops_and_writes_nothing_more(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(**{**LONG, "budget": {"trials_per_method": 4, "rounds": 400_000, "seeds": 0}})
    study_id = client.submit(study)
    driven = Driven(client, study_id, tmp_path)
    until(lambda: any(trial.rounds_done for trial in client.store.trials.find(study_id)))
    client.store.leases.lost(study_id, 1, "a test took it away")
    attempt = client.store.leases.acquire(study_id, "elsewhere/1").attempt
    assert driven.end() == "STALE"
    assert client.store.leases.heartbeat(study_id, attempt) == "run"


def test_a_joined_ray_is_marked_by_the_driver_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutex, "_TURN_LOOK_S", 0.05)
    said: list[str] = []
    looks = iter([True, True, True, False])
    reason = "waits for its turn: one study at a time uses a Ray cluster, and the driver of study one uses this one"
    with mutex.alone("one", said.append):
        with pytest.raises(mutex.NotJoined, match=reason), mutex.alone("two", said.append, lambda: next(looks)):
            pass
        monkeypatch.setattr(mutex, "TURN_S", 0.2)
        with pytest.raises(mutex.NotJoined), mutex.alone("two", said.append):
            pass
    assert said == [f"this study {reason}"] * 2
    with mutex.alone("two", said.append):  # the mark is gone with the driver that held it
        pass


def test_a_driver_waits_until_the_one_before_it_has_gone(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    study_id = client.submit(quadratic(sampler="tpe"))
    lines: list[str] = []
    with mutex.alone(study_id, lines.append):  # a driver of the same study that was cut off from the network
        driven = Driven(client, study_id, tmp_path, progress=lines.append)
        until(lambda: any("waits for its turn" in line for line in lines))
        assert client.heartbeat(study_id, 1) == "run"
        assert client.store.trials.find(study_id) == []  # nothing is trained twice
    assert driven.end() == "SUCCEEDED"
    assert lines[1:] == ["Ray is ready: 2 workers of 1 CPU each"]
    assert {trial.state for trial in client.store.trials.find(study_id)} <= {"COMPLETE", "DIVERGED"}
    assert len(client.finished) == len(client.store.trials.find(study_id)) == 20
    assert client.store.studies.get(study_id).state == "SUCCEEDED"
    assert not list(tmp_path.rglob("*.ckpt"))
    assert capfd.readouterr().out == ""

    second = client.submit(quadratic())
    monkeypatch.setattr(mutex, "TURN_S", 0.2)
    with mutex.alone("another", lines.append):
        assert Driven(client, second, tmp_path).end() == "PAUSED"
        record = client.store.studies.get(second)
        assert record.state == "PENDING"  # the scheduler starts it again, and nothing counts against it
        assert "the driver of study another uses this one" in record.reason
        assert client.store.leases.driven()[0].deaths == 0
        monkeypatch.setattr(mutex, "TURN_S", 60.0)
        driven = Driven(client, second, tmp_path, progress=lines.append)
        until(lambda: client.store.studies.get(second).state == "RUNNING")
        client.cancel(second)
        assert driven.end() == "CANCELLED"


def test_data_at_a_url_are_read_on_a_worker(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        put(server, 30)
        monkeypatch.setattr(client, "data_urls", lambda _: [f"private:{server.url('/sets/')}"], raising=False)
        study_id = client.submit(study_of(server))
        assert Driven(client, study_id, tmp_path).end() == "SUCCEEDED"
    assert len(client.finished) == 2
    assert len(client.store.studies.get(study_id).plan.data) == 64
