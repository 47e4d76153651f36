"""Drivers as processes of their own, with a Ray of their own, over a real service."""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from driftline.errors import Unavailable
from service.api.app import create_app
from service.api.auth.tokens import Tokens
from service.api.http_server import Server
from service.launchers.base import Launch
from service.launchers.local import driver_processes
from service.launchers.local import launcher as local
from service.launchers.local.launcher import LocalLauncher
from service.store.store import Store
from tests.driver.store_client import quadratic
from tests.waiting import until

ROUNDS = 3000
"""Of each trial: a pack takes seconds on a fast machine too, so that drivers are killed and stopped in the midst."""

LONG = {
    "task": {"name": "quadratic", "problem": "continuum", "clients": 50},
    "budget": {"trials_per_method": 8, "rounds": ROUNDS, "seeds": 0},
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
            folder / "logs",
            socket=str(self.server.socket) if self.server.socket else None,
            num_cpus=2,
        )

    def submit(self, **changes: object) -> str:
        study = quadratic(**changes)
        return self.store.studies.create(study.to_json(), study.fingerprint()).id

    def start(self, study_id: str) -> int:
        self.launcher.start(Launch(study_id, "small", "default", self.tokens.driver(study_id), attempt=1))
        return int((self.folder / "logs" / f"{study_id}.lock").read_text())

    def log(self, study_id: str) -> str:
        return (self.folder / "logs" / f"{study_id}.log").read_text()

    def until(self, true: Callable[[], bool], study_id: str) -> None:
        until(true, 240, lambda: f"The driver says\n{self.log(study_id)}")

    def begun(self, study_id: str) -> bool:
        return any(trial.rounds_done for trial in self.store.trials.find(study_id))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.launcher.end(150)
    made.server.close()
    made.store.close()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(780)
def test_a_driver_is_killed_its_successor_told_to_stop_and_the_third_finishes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    study_id = service.submit(**LONG)
    first = service.start(study_id)
    service.until(lambda: service.begun(study_id), study_id)
    os.kill(first, signal.SIGKILL)
    service.until(lambda: not service.launcher.seen(study_id).alive, study_id)
    assert service.store.studies.get(study_id).state == "RUNNING"

    known = {trial.id: trial.rounds_done for trial in service.store.trials.find(study_id)}

    def trained() -> bool:
        """Whether the second driver has trained all that it has begun; without a checkpoint it begins at round 0."""
        running = [trial for trial in service.store.trials.find(study_id) if trial.state == "RUNNING"]
        return bool(running) and all(trial.rounds_done != known.get(trial.id, 0) for trial in running)

    second = service.start(study_id)
    assert second != first
    service.until(lambda: service.store.leases.driven()[0].attempt == 2, study_id)
    service.until(trained, study_id)
    service.launcher.stop(study_id)
    service.until(lambda: not service.store.leases.driven()[0].held, study_id)
    assert service.store.studies.get(study_id).state == "PENDING"
    assert all(
        trial.checkpoint
        for trial in service.store.trials.find(study_id)
        if trial.state == "WAITING" and trial.rounds_done
    )

    service.until(lambda: not service.launcher.seen(study_id).alive, study_id)  # it still ends its Ray
    service.start(study_id)
    service.until(lambda: service.store.studies.get(study_id).state == "SUCCEEDED", study_id)
    service.until(lambda: not service.launcher.seen(study_id).alive, study_id)
    trials = service.store.trials.find(study_id)
    assert len(trials) == 16
    assert all(trial.finished for trial in trials)
    curves = service.store.curves.columns(study_id)
    complete = [trial.id for trial in trials if trial.state == "COMPLETE"]
    assert all(curves[trial]["round"] == list(range(ROUNDS + 1)) for trial in complete)
    assert "Ray is ready: 2 workers of 1 CPU each" in service.log(study_id)
    assert not list(service.folder.rglob("*.ckpt"))


def test_a_driver_of_an_unknown_study_says_so(service: Service) -> None:
    service.start("01k6nosuchstudy0000000000")
    service.until(lambda: not service.launcher.seen("01k6nosuchstudy0000000000").alive, "01k6nosuchstudy0000000000")
    assert "no study" in service.log("01k6nosuchstudy0000000000").lower()
    assert "Traceback" not in service.log("01k6nosuchstudy0000000000")


def stubborn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has launchers start a process that ignores SIGTERM; returns the file that it makes when it is up."""
    script = folder / "stubborn.sh"
    script.write_text(f"#!/bin/sh\ntrap '' TERM\ntouch '{folder / 'ready'}'\nwhile :; do sleep 0.1; done\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return folder / "ready"


def test_a_process_that_does_not_end_itself_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = stubborn(tmp_path, monkeypatch)
    launcher = LocalLauncher("http://127.0.0.1:1", str(tmp_path), tmp_path / "logs", stop_s=2.0)
    assert not launcher.seen("study").alive
    launcher.stop("study")
    launch = Launch("study", "small", "default", "token", 1)
    launcher.start(launch)
    first = launcher._children["study"]
    launcher.start(launch)
    assert launcher._children["study"] is first
    until(ready.exists)
    launcher.stop("study")
    assert launcher.seen("study").alive
    until(lambda: not launcher.seen("study").alive)
    assert first.returncode == -signal.SIGKILL
    assert launcher.seen("study").reason == "its process has ended with signal SIGKILL"
    launcher.stop("study")
    assert launcher.seen("study").reason == ""


def test_a_second_launcher_over_the_same_folder_finds_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = stubborn(tmp_path, monkeypatch)
    first = LocalLauncher("http://127.0.0.1:1", str(tmp_path), tmp_path / "logs", stop_s=0.3)
    first.start(Launch("study", "small", "default", "token", 1))
    until(ready.exists)
    first.close()
    second = LocalLauncher("http://127.0.0.1:1", str(tmp_path), tmp_path / "logs", stop_s=0.3)
    assert second.seen("study").alive
    second.start(Launch("study", "small", "default", "token", 2))
    assert not second._children  # it runs
    second.collect({"study"})
    assert second.seen("study").alive
    second.collect(set())  # nobody knows the study: its driver is stopped
    until(lambda: not second.seen("study").alive)
    second.collect(set())
    assert not list((tmp_path / "logs").glob("*.lock"))
    assert first.seen("study").reason.endswith("signal SIGKILL")


def with_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As `stubborn`, with a worker: a process in a session of its own that may outlive its driver."""
    python = sys.executable
    ready = stubborn(folder, monkeypatch)
    Path(sys.executable).write_text(
        f"#!{python}\nimport pathlib, signal, subprocess\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        f"pathlib.Path({str(ready)!r}).touch()\nwhile True:\n    signal.pause()\n"
    )
    return ready


def workers(logs: Path) -> list[int]:
    """Processes that began as workers."""
    return [
        pid
        for pid in driver_processes.marked(logs).get("study", [])
        if b"1000" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("deleted", [False, True], ids=["", "logs deleted"])
def test_a_launcher_ends_drivers_that_another_one_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    ready = with_workers(tmp_path, monkeypatch)
    logs = tmp_path / "logs"
    first = LocalLauncher("http://127.0.0.1:1", str(tmp_path), logs)
    first.start(Launch("study", "small", "default", "token", 1))
    child = first._children["study"]
    until(ready.exists)
    until(lambda: workers(logs))
    first.close()
    if deleted:
        shutil.rmtree(logs)
    second = LocalLauncher("http://127.0.0.1:1", str(tmp_path), logs)
    assert second.seen("study").alive
    second.start(Launch("study", "small", "default", "token", 2))
    assert not second._children  # it runs
    second.end(0.2)
    assert not driver_processes.marked(logs)
    assert child.wait(10) == -signal.SIGKILL
    assert not second.seen("study").alive


def test_a_stopped_driver_is_killed_with_all_its_processes_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = with_workers(tmp_path, monkeypatch)
    logs = tmp_path / "logs"
    launcher = LocalLauncher("http://127.0.0.1:1", str(tmp_path), logs)
    for study in ("study", "other"):
        launcher.start(Launch(study, "small", "default", "token", 1))
        until(ready.exists)
        ready.unlink()
    until(lambda: workers(logs))
    for pid in driver_processes.marked(logs)["study"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    launcher.kill("study")
    launcher.kill("nothing")
    until(lambda: not launcher.seen("study").alive)
    until(lambda: "study" not in driver_processes.marked(logs))
    assert launcher.seen("other").alive
    launcher.end(0.0)


def test_what_a_dead_driver_has_left_is_ended_before_another_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = with_workers(tmp_path, monkeypatch)
    logs = tmp_path / "logs"
    launcher = LocalLauncher("http://127.0.0.1:1", str(tmp_path), logs)
    launch = Launch("study", "small", "default", "token", 1)
    launcher.start(launch)
    until(ready.exists)
    (worker,) = until(lambda: workers(logs))
    os.kill(worker, signal.SIGSTOP)
    os.kill(launcher._children["study"].pid, signal.SIGKILL)
    until(lambda: not launcher.seen("study").alive)
    assert workers(logs) == [worker]
    launcher.start(launch)
    until(lambda: workers(logs))
    assert worker not in workers(logs)
    launcher.end(0.0)

    monkeypatch.setattr(local, "_SWEEP_S", 0.1)
    monkeypatch.setattr(driver_processes, "kill", lambda logs, study: [4711])  # it waits for a disk
    with pytest.raises(Unavailable, match="got 4711, which SIGKILL does not end: look for a disk or a GPU"):
        launcher.start(launch)
    assert not launcher.seen("study").alive


def test_a_driver_that_fails_says_why_in_its_last_line(tmp_path: Path) -> None:
    launcher = LocalLauncher("http://127.0.0.1:1", str(tmp_path), tmp_path / "logs", num_cpus=0)
    launcher._options = ["--nonsense"]
    launcher.start(Launch("study", "small", "default", "token", 1))
    until(lambda: not launcher.seen("study").alive)
    assert launcher.seen("study").reason.startswith(
        "its process has ended with exit code 2: python -m service.driver: err"
    )
