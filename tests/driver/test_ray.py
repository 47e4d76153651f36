"""Drivers on a real Ray: whole studies, killed workers, stops and resumes."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.driver.run import run_driver
from service.errors import Conflict
from tests.driver.stand_ins import StoreClient, quadratic

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_started"), pytest.mark.timeout(120)]

LONG = {
    "task": {"name": "quadratic", "problem": "continuum", "clients": 50},
    "budget": {"trials_per_method": 4, "rounds": 4000, "seeds": 0},
    "resources": {"gpu": 0, "packs": 2},
    "clients_per_round": 5,
}
QUICK = {"chunk_seconds": 0.3, "checkpoint_seconds": 0.5}


def plain(client: StoreClient, study_id: str) -> dict[str, Any]:
    """Curves without what no two runs share, by the trial's name within its study."""
    return {
        trial.partition(".")[2]: {name: column for name, column in columns.items() if name != "wall_seconds"}
        for trial, columns in client.store.curves(study_id).items()
    }


class Driven(threading.Thread):
    """A driver in a thread, as the embedded service runs it."""

    def __init__(self, client: StoreClient, study_id: str, folder: Path, **options: Any) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.ended: Any = None
        self._arguments = (client, study_id, self.stop)
        self._options = {"folder": folder, "options": QUICK, **options}
        self.start()

    def run(self) -> None:
        try:
            self.ended = run_driver(*self._arguments, **self._options)
        except Exception as error:
            self.ended = error

    def end(self) -> Any:
        self.join(90)
        assert not self.is_alive()
        return self.ended


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_a_study_runs_to_its_end(client: StoreClient, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study = quadratic(sampler="tpe")
    study_id = client.submit(study)
    lines: list[str] = []
    driven = Driven(client, study_id, tmp_path / "checkpoints", progress=lines.append)
    assert driven.end() == "SUCCEEDED"
    trials = client.store.trials(study_id)
    assert len(trials) == 20
    assert all(trial.state in ("COMPLETE", "DIVERGED") for trial in trials)
    assert len(client.finished) == 20
    assert lines == ["Ray is ready: 2 workers of 1 CPU each"]
    assert client.store.study(study_id).state == "SUCCEEDED"
    assert not list((tmp_path / "checkpoints").rglob("*.ckpt"))
    printed = capfd.readouterr()
    assert printed.out == ""


def test_a_killed_worker_costs_no_result_and_nothing_counts_twice(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(**LONG)
    whole = client.submit(study)
    assert Driven(client, whole, tmp_path).end() == "SUCCEEDED"
    client.finished.clear()
    study_id = client.submit(study)
    pids: list[int] = []
    reported = client.store.report

    def spy(study: str, report: Any) -> int:
        if report.checkpoint:
            pids.append(report.rounds_done)
        return reported(study, report)

    client.store.report = spy  # type: ignore[method-assign]
    driven = Driven(client, study_id, tmp_path)
    until(lambda: bool(pids))
    victims = workers()
    assert len(victims) == 2
    os.kill(victims[0], signal.SIGKILL)
    assert driven.end() == "SUCCEEDED"
    trials = client.store.trials(study_id)
    assert [trial.state for trial in trials] == ["COMPLETE"] * 8
    assert sorted(trial.attempt for trial in trials) == [1] * 6 + [2] * 2
    assert len(client.finished) == len({result.trial for result in client.finished}) == 8
    assert plain(client, study_id) == plain(client, whole)


def test_a_stopped_study_resumes_with_the_same_curves(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(**LONG)
    whole, study_id = client.submit(study), client.submit(study)
    assert Driven(client, whole, tmp_path).end() == "SUCCEEDED"
    client.finished.clear()
    driven = Driven(client, study_id, tmp_path)
    until(lambda: any(trial.rounds_done for trial in client.store.trials(study_id)))
    driven.stop.set()
    assert driven.end() == "PAUSED"
    begun = [trial for trial in client.store.trials(study_id) if trial.rounds_done]
    assert {trial.state for trial in client.store.trials(study_id)} <= {"WAITING", "COMPLETE"}
    assert all(trial.checkpoint for trial in begun if trial.state == "WAITING")
    assert client.store.study(study_id).state == "PENDING"  # nobody asked for a pause
    done = {trial.id for trial in begun if trial.finished}
    assert Driven(client, study_id, tmp_path).end() == "SUCCEEDED"
    assert len(client.finished) == len({result.trial for result in client.finished}) == 8
    assert done < {result.trial for result in client.finished}
    assert plain(client, study_id) == plain(client, whole)


def test_its_owner_pauses_and_cancels_a_study(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(**{**LONG, "budget": {"trials_per_method": 4, "rounds": 400_000, "seeds": 0}})
    study_id = client.submit(study)
    driven = Driven(client, study_id, tmp_path)
    until(lambda: any(trial.rounds_done for trial in client.store.trials(study_id)))
    client.pause(study_id)
    assert driven.end() == "PAUSED"
    assert client.store.study(study_id).state == "PAUSED"
    client.resume(study_id)
    before = max(trial.rounds_done for trial in client.store.trials(study_id))
    driven = Driven(client, study_id, tmp_path)
    until(lambda: max(trial.rounds_done for trial in client.store.trials(study_id)) > before)
    client.cancel(study_id)
    assert driven.end() == "CANCELLED"
    assert {trial.state for trial in client.store.trials(study_id)} == {"CANCELLED"}


def test_one_study_at_a_time_uses_a_ray(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(**{**LONG, "budget": {"trials_per_method": 4, "rounds": 400_000, "seeds": 0}})
    first, second = client.submit(study), client.submit(study)
    driven = Driven(client, first, tmp_path)
    until(lambda: client.store.study(first).state == "RUNNING")
    other = Driven(client, second, tmp_path).end()
    assert other == "FAILED"
    assert "one study at a time uses a Ray cluster" in client.store.study(second).reason
    client.cancel(first)
    assert driven.end() == "CANCELLED"
    assert isinstance(Driven(client, first, tmp_path).end(), Conflict)


def test_resources_that_no_node_has_are_refused_before_anything_runs(client: StoreClient, tmp_path: Path) -> None:
    study_id = client.submit(quadratic(resources={"gpu": 3}))
    assert Driven(client, study_id, tmp_path, nodes_s=0.0).end() == "FAILED"
    reason = "resources.gpu: a pack needs 1 CPU and 3 GPU of one node, the nodes have 2 CPU: ask for less"
    assert client.store.study(study_id).reason == reason


def test_a_replaced_driver_stops_and_writes_nothing_more(client: StoreClient, tmp_path: Path) -> None:
    study = quadratic(**{**LONG, "budget": {"trials_per_method": 4, "rounds": 400_000, "seeds": 0}})
    study_id = client.submit(study)
    driven = Driven(client, study_id, tmp_path)
    until(lambda: any(trial.rounds_done for trial in client.store.trials(study_id)))
    client.store.lost(study_id, 1, "a test took it away")
    attempt = client.store.acquire(study_id, "elsewhere/1").attempt
    assert driven.end() == "STALE"
    assert client.store.heartbeat(study_id, attempt) == "run"


def workers() -> list[int]:
    """Process ids of the packs' workers."""
    from ray.util.state import list_actors

    actors = list_actors(filters=[("state", "=", "ALIVE"), ("class_name", "=", "Worker")])
    return [int(actor.pid) for actor in actors]
