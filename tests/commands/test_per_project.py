"""`driftline serve --per-project`, where every study has a Ray cluster of its own."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from driftline.errors import DriftlineError
from driftline.wire.access import NewToken
from service.embedded.thread_launcher import ThreadLauncher
from service.launchers.local import launcher as local
from service.server import compose
from tests.clients import EveryClient
from tests.commands.conftest import STUDY, Drivers
from tests.ports import free_port
from tests.waiting import until


@pytest.fixture
def signals() -> Iterator[None]:
    """Gives the signals back that a service took."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_a_project_has_no_more_studies_at_once_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivers: Drivers, run: Callable[..., Result]
) -> None:
    def build(config: object, *, url: str, checkpoints: str, logs: Path) -> ThreadLauncher:
        launcher = ThreadLauncher(lambda token: EveryClient(url, token), drivers.drive)
        launcher.own_cluster = True
        return launcher

    kind = SimpleNamespace(Config=local.Config, ON_THIS_MACHINE=True, build=build)
    monkeypatch.setattr(compose, "launcher_kind", lambda name: kind)
    values = {"HOME": str(tmp_path / "home"), "LAUNCHER": "kubernetes", "MLFLOW_URL": "none", "ADMIN_TOKEN": "admin"}
    for name, value in values.items():
        monkeypatch.setenv(f"DRIFTLINE_{name}", value)
    port = free_port()
    drivers.gate.clear()
    seen: list[Any] = []

    def look() -> None:
        try:
            with EveryClient(f"http://127.0.0.1:{port}", "admin", patience_s=60) as admin:
                until(admin.ready)
                token = admin.make_token(NewToken(name="ann", project="other")).token
                with EveryClient(admin.url, token) as other:
                    first, second, third = (admin.create(STUDY).id for _ in range(3))
                    foreign = other.create(STUDY).id
                    until(lambda: other.study(foreign).state == "RUNNING")
                    until(lambda: admin.study(second).reason and admin.study(third).reason)
                    seen.append([admin.study(study).state for study in (first, second, third)])
                    seen.append({admin.study(study).reason for study in (second, third)})
                    drivers.gate.set()
                    for client, study in ((admin, first), (admin, second), (admin, third), (other, foreign)):
                        until(lambda client=client, study=study: client.study(study).state == "SUCCEEDED")
                    seen.append("all done")
        except (DriftlineError, AssertionError) as error:
            seen.append(error)
        finally:
            drivers.gate.set()
            while not ended.is_set():  # the command takes the signals when it has begun
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.5)

    ended = threading.Event()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    thread = threading.Thread(target=look)
    thread.start()
    said = run("serve", "--port", port, "--per-project", 1)
    ended.set()
    thread.join()
    assert said.exit_code == 0, said.output
    assert seen == [
        ["RUNNING", "QUEUED", "QUEUED"],
        {"waits for another study of its project: 1 at a time"},
        "all done",
    ]
