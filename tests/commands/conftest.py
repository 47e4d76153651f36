"""A whole service in this process, whose drivers train without Ray, and the command line against it."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from driftline.client.environment import environment
from driftline.study.spec import Study
from service.api.allowed_files import only_under
from service.api.study_checks import check
from service.cli.main import app
from service.driver.ray.worker import Worker
from service.driver.search.search import Search
from service.embedded.thread_launcher import ThreadLauncher
from service.launchers.local import launcher as local
from service.server import compose
from service.server.compose import Service
from service.settings import read_service
from tests.clients import EveryClient

STUDY = {
    "name": "small",
    "task": {"name": "quadratic", "problem": "continuum", "clients": 10},
    "methods": [
        {"name": "fedavg", "space": {"client_lr": {"float": [0.001, 0.05]}, "server_lr": 0.05, "local_steps": 3}},
        {"name": "fedsgd", "space": {"server_lr": {"float": [0.01, 0.1]}}},
    ],
    "sampler": "quasi_random",
    "clients_per_round": 5,
    "budget": {"trials_per_method": 3, "rounds": 20, "seeds": 3, "confirm": 1},
    "resources": {"gpu": 0, "packs": 1},
}


class Drivers:
    """Drivers' lives without Ray: one pack after the other, in one thread each.

    Attributes:
        gate: They train while it is set.
        fail: With what reason they fail at once; "" when they do not.
        deaths: How many packs lose their worker at once, from the next one on.
    """

    def __init__(self, folder: Path) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.fail = ""
        self.deaths = 0
        self._folder = folder

    def drive(self, client: EveryClient, study_id: str, stop: threading.Event) -> None:
        """Drives a study."""
        attempt = client.acquire(study_id, f"thread/{threading.get_ident()}").attempt
        if self.fail:
            client.release(study_id, attempt, "FAILED", self.fail)
            return
        study = Study.from_json(client.study(study_id).spec)
        options = {"chunk_seconds": 60.0}
        search = Search(client, study_id, study, attempt, folder=str(self._folder), slots=lambda: 1, options=options)
        search.load()
        while not search.finished:
            while not (self.gate.wait(5) or stop.is_set()):
                client.heartbeat(study_id, attempt)  # the lease lasts for as long as a test takes
            wish = "pause" if stop.is_set() else client.heartbeat(study_id, attempt)
            if wish != "run":
                client.release(study_id, attempt, "CANCELLED" if wish == "cancel" else "PAUSED")
                return
            self._train(search)
        client.release(study_id, attempt, *search.outcome())

    def _train(self, search: Search) -> None:
        job = search.next_job()
        if job is None:
            return
        if self.deaths:
            self.deaths -= 1
            search.lost(job.pack)
            return
        worker = Worker.__new__(Worker)
        worker.take(job.config())
        done = False
        while not done:
            result = worker.step()
            search.report(json.loads(result["report"]))
            done = result["done"]


@pytest.fixture
def drivers(tmp_path: Path) -> Drivers:
    return Drivers(tmp_path / "checkpoints")


@pytest.fixture
def gate(drivers: Drivers) -> threading.Event:
    """Drivers train while it is set."""
    return drivers.gate


def on_threads(monkeypatch: pytest.MonkeyPatch, drivers: Drivers, *, own_cluster: bool = False) -> None:
    """Services that are made from now on have drivers in threads."""

    def build(config: local.Config, *, url: str, checkpoints: str, logs: Path) -> ThreadLauncher:
        launcher = ThreadLauncher(lambda token: EveryClient(url, token), drivers.drive)
        launcher.own_cluster = own_cluster
        return launcher

    kind = SimpleNamespace(Config=local.Config, ON_THIS_MACHINE=True, build=build)
    monkeypatch.setattr(compose, "launcher_kind", lambda name: kind)
    # Studies are checked in this process: another one would load torch anew.
    monkeypatch.setattr(compose, "check_processes", lambda roots, hidden, urls: only_under(roots, check, urls))


@pytest.fixture
def service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivers: Drivers, request: pytest.FixtureRequest
) -> Iterator[Service]:
    """A service in this process; DRIFTLINE_URL and DRIFTLINE_TOKEN lead to it. A parameter adds variables to it."""
    on_threads(monkeypatch, drivers)
    home = tmp_path / "home"
    given = {"DRIFTLINE_HOME": str(home), "DRIFTLINE_MLFLOW_URL": "none", **getattr(request, "param", {})}
    made = Service(read_service(given), host="127.0.0.1", port=0)
    monkeypatch.setenv("DRIFTLINE_URL", made.url)
    monkeypatch.setenv("DRIFTLINE_TOKEN", (home / "admin-token").read_text().strip())
    environment.cache_clear()
    yield made
    drivers.gate.set()
    made.close()
    environment.cache_clear()
    logging.getLogger("uvicorn.error").handlers.clear()


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    return file


@pytest.fixture
def run() -> Callable[..., Result]:
    """Runs a command; errors of ours come out as exceptions, as `main` gets them."""
    runner = CliRunner()

    def invoke(*arguments: Any, input: str = "") -> Result:  # noqa: A002 - as the runner calls it
        return runner.invoke(app, [str(argument) for argument in arguments], input, catch_exceptions=True)

    return invoke
