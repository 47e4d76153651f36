"""Drivers as processes of their own, which a launcher starts and ends; tests/faults has them train, and die."""

import contextlib
import os
import shutil
import signal
import sys
from contextlib import closing
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
from tests.waiting import until


def test_a_driver_of_an_unknown_study_says_so(tmp_path: Path) -> None:
    store, study_id = Store(tmp_path / "driftline.db"), "01k6nosuchstudy0000000000"
    tokens, _ = Tokens.random()
    with closing(store), Server(create_app(store, tokens)) as server:
        socket = str(server.socket) if server.socket else None
        launcher = LocalLauncher(server.url, str(tmp_path), tmp_path / "logs", socket=socket, num_cpus=0)
        launcher.start(Launch(study_id, "small", "default", tokens.driver(study_id), attempt=1))
        until(lambda: not launcher.seen(study_id).alive)
    log = (tmp_path / "logs" / f"{study_id}.log").read_text()
    assert "no study" in log.lower()
    assert "Traceback" not in log


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
