"""Parts of a service as processes of their own, and a study that keeps them busy for a while."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.clients import EveryClient
from tests.ports import free_port
from tests.waiting import until

SMALL = {
    "name": "served",
    "task": {"name": "quadratic", "problem": "continuum", "clients": 50},
    "methods": [
        {"name": "fedavg", "space": {"client_lr": {"float": [0.001, 0.01]}, "server_lr": 0.004, "local_steps": 60}}
    ],
    "sampler": "quasi_random",
    "clients_per_round": 5,
    "budget": {"trials_per_method": 4, "rounds": 3000, "seeds": 0},
    "resources": {"gpu": 0, "packs": 1},
}
"""Local steps that make a trial last for seconds on a fast machine, too: it is to be interrupted.

Two trials run when this happens, and two have not begun.
"""


class Processes:
    """Parts of a service as processes over one home."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("DRIFTLINE_", "RAY_"))}
        calm = {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}  # see tests/conftest.py
        self._environment = {**plain, "DRIFTLINE_HOME": str(home), **calm, **environment}
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        number = len(self.started)
        self.home.mkdir(exist_ok=True)
        with (self.home / f"serve{number}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "service.cli", "serve", *options],
                env={**self._environment, **environment},
                stderr=log,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def said(self, number: int = 0) -> str:
        return (self.home / f"serve{number}.log").read_text()

    def ready(self, port: int) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.started:
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Begun(NamedTuple):
    """A service, a client of it, and a study that trains."""

    processes: Processes
    port: int
    client: EveryClient
    study: str


def running(home: Path, word: str, variable: str = "DRIFTLINE_HOME") -> list[int]:
    """Processes of the service with this home, drivers' and Ray's included, whose command line has this in it.

    Another variable than this one may have the home, or another path, as its value.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ours = f"{variable}={home}".encode() in (entry / "environ").read_bytes().split(b"\0")
            if ours and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@contextmanager
def begun(home: Path, spec: dict[str, Any] = SMALL, **settings: str) -> Iterator[Begun]:
    """A study in a service of one process, when its first rounds are done; all is ended with the block."""
    port = free_port()
    calm = {"DRIFTLINE_MLFLOW_URL": "none", "DRIFTLINE_ADMIN_TOKEN": "admin", "RAY_AUTH_MODE": "disabled"}
    processes = Processes(home, **calm, **settings)
    try:
        processes.start("--port", str(port))
        until(lambda: processes.ready(port), 120)
        with EveryClient(f"http://127.0.0.1:{port}", "admin", patience_s=60) as client:
            study = client.create(spec).id
            until(lambda: any(trial.rounds_done for trial in client.trials(study)), 300)
            yield Begun(processes, port, client, study)
    finally:
        processes.end()
