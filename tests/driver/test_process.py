"""Drivers as processes of their own, with a Ray of their own, over a real service."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.api.access import Tokens
from service.api.app import create_app
from service.api.serve import Server
from service.launchers.local import LocalLauncher
from service.store.store import Store
from tests.driver.stand_ins import quadratic

LONG = {
    "task": {"name": "quadratic", "problem": "continuum", "clients": 50},
    "budget": {"trials_per_method": 4, "rounds": 400, "seeds": 0},
    "resources": {"gpu": 0, "packs": 2},
    "clients_per_round": 5,
}


class Service:
    """A store, its app under a server, and a launcher."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / "driftline.db")
        self.tokens, _ = Tokens.random()
        self.server = Server(create_app(self.store, self.tokens))
        self.launcher = LocalLauncher(
            self.server.url,
            str(folder / "checkpoints"),
            socket=str(self.server.socket) if self.server.socket else None,
            logs=folder / "logs",
            num_cpus=2,
        )

    def submit(self, **changes: object) -> str:
        study = quadratic(**changes)
        return self.store.create_study(study.to_json(), study.fingerprint()).id

    def start(self, study_id: str) -> int:
        self.launcher.start(study_id, self.tokens.driver(study_id), attempt=1)
        return self.launcher._running[study_id].pid

    def log(self, study_id: str) -> str:
        return (self.folder / "logs" / f"{study_id}.log").read_text()

    def until(self, true: Callable[[], bool], study_id: str) -> None:
        deadline = time.monotonic() + 90
        while not true():
            assert time.monotonic() < deadline, f"waited in vain; the driver says\n{self.log(study_id)}"
            time.sleep(0.05)

    def begun(self, study_id: str) -> bool:
        return any(trial.rounds_done for trial in self.store.trials(study_id))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.launcher.close()
    made.server.close()
    made.store.close()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_driver_is_killed_its_successor_told_to_stop_and_the_third_finishes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    study_id = service.submit(**{**LONG, "budget": {"trials_per_method": 8, "rounds": 1000, "seeds": 0}})
    first = service.start(study_id)
    service.until(lambda: service.begun(study_id), study_id)
    os.kill(first, signal.SIGKILL)
    service.until(lambda: not service.launcher.alive(study_id), study_id)
    assert service.store.study(study_id).state == "RUNNING"

    second = service.start(study_id)
    assert second != first
    service.until(lambda: service.store.driven()[0].attempt == 2, study_id)
    progress = sum(trial.rounds_done for trial in service.store.trials(study_id))
    service.until(lambda: sum(trial.rounds_done for trial in service.store.trials(study_id)) > progress, study_id)
    service.launcher.stop(study_id)
    service.until(lambda: not service.store.driven()[0].held, study_id)
    assert service.store.study(study_id).state == "PENDING"
    assert all(
        trial.checkpoint for trial in service.store.trials(study_id) if trial.state == "WAITING" and trial.rounds_done
    )

    service.start(study_id)
    service.until(lambda: service.store.study(study_id).state == "SUCCEEDED", study_id)
    service.until(lambda: not service.launcher.alive(study_id), study_id)
    trials = service.store.trials(study_id)
    assert len(trials) == 16
    assert all(trial.finished for trial in trials)
    curves = service.store.curves(study_id)
    complete = [trial.id for trial in trials if trial.state == "COMPLETE"]
    assert all(curves[trial]["round"] == list(range(1001)) for trial in complete)
    assert "Ray is ready: 2 workers of 1 CPU each" in service.log(study_id)
    assert not list(service.folder.rglob("*.ckpt"))


def test_a_driver_of_an_unknown_study_says_so(service: Service) -> None:
    service.start("01k6nosuchstudy0000000000")
    service.until(lambda: not service.launcher.alive("01k6nosuchstudy0000000000"), "01k6nosuchstudy0000000000")
    assert "no study" in service.log("01k6nosuchstudy0000000000").lower()
    assert "Traceback" not in service.log("01k6nosuchstudy0000000000")


def test_a_launcher_ends_a_process_that_does_not_end_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = tmp_path / "stubborn.sh"
    stubborn.write_text("#!/bin/sh\ntrap '' TERM\ntouch \"$DRIFTLINE_READY\"\nwhile :; do sleep 0.1; done\n")
    stubborn.chmod(0o755)
    ready = tmp_path / "ready"
    monkeypatch.setenv("DRIFTLINE_READY", str(ready))
    monkeypatch.setattr(sys, "executable", str(stubborn))
    launcher = LocalLauncher("http://127.0.0.1:1", str(tmp_path), stop_s=0.3)
    launcher.start("study", "token", 1)
    process = launcher._running["study"]
    launcher.start("study", "token", 1)
    assert launcher._running["study"] is process
    deadline = time.monotonic() + 10
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert launcher.alive("study")
    launcher.stop("study")
    assert not launcher.alive("study")
    assert process.wait(10) == -signal.SIGKILL
    launcher.stop("study")
