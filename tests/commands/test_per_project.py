"""`driftline serve --per-project`, where every study has a Ray cluster of its own."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from driftline.errors import Unavailable
from driftline.wire.access import NewToken
from service.cli import serve
from service.server.compose import Service
from service.settings import read_service
from tests.clients import EveryClient
from tests.commands.conftest import STUDY, Drivers, on_threads
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
    on_threads(monkeypatch, drivers, own_cluster=True)
    values = {"HOME": str(tmp_path / "home"), "LAUNCHER": "kubernetes", "MLFLOW_URL": "none", "ADMIN_TOKEN": "admin"}
    for name, value in values.items():
        monkeypatch.setenv(f"DRIFTLINE_{name}", value)
    given: dict[str, Any] = {}

    def made(_settings: object, **options: Any) -> None:
        given.update(options)
        raise Unavailable("the command has come this far")

    monkeypatch.setattr(serve, "Service", made)
    assert isinstance(run("serve", "--per-project", 1).exception, Unavailable)
    drivers.gate.clear()
    service = Service(read_service(os.environ), host="127.0.0.1", port=0, per_project=given["per_project"])
    try:
        with EveryClient(service.url, "admin") as admin:
            token = admin.make_token(NewToken(name="ann", project="other")).token
            with EveryClient(service.url, token) as other:
                first, *waiting = (admin.create(STUDY).id for _ in range(3))
                foreign = other.create(STUDY).id
                until(lambda: other.study(foreign).state == "RUNNING")
                until(lambda: all(admin.study(study).reason for study in waiting))
                assert [admin.study(study).state for study in (first, *waiting)] == ["RUNNING", "QUEUED", "QUEUED"]
                why = "waits for another study of its project: 1 at a time"
                assert {admin.study(study).reason for study in waiting} == {why}
                drivers.gate.set()
                for client, study in ((other, foreign), *((admin, study) for study in (first, *waiting))):
                    until(lambda client=client, study=study: client.study(study).state == "SUCCEEDED")
    finally:
        drivers.gate.set()
        service.close()
