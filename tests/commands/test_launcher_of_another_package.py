"""A service whose launcher comes from another installed package: it is asked for nothing that its contract lacks."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import InvalidSpec
from service.launchers.base import launchers
from service.server.compose import Service
from service.settings import read_service
from tests.clients import EveryClient
from tests.commands.conftest import STUDY
from tests.waiting import until

LAUNCHER = '''
from driftline.study.validation import Section
from service.launchers.base import Launcher, Seen
from service.launchers.worker_pools import WorkerPools

__all__ = ["CALLS", "Queue"]
CALLS = []

class Config(Section):
    partition: str = "short"

class Queue(Launcher):
    """Starts nothing that would ever take a study."""
    own_cluster = True
    start_seconds = 0.0
    pools = WorkerPools(gpus={"long": 0, "short": 0})
    def start(self, launch):
        CALLS.append(("start", launch.study_id))
    def seen(self, study_id):
        return Seen(("start", study_id) in CALLS)
    def stop(self, study_id): ...
    def kill(self, study_id):
        CALLS.append(("kill", study_id))
    def collect(self, study_ids): ...
    def close(self):
        CALLS.append(("close", None))
    def end(self, seconds):
        CALLS.append(("end", seconds))

def build(config, *, url, checkpoints, logs):
    CALLS.append(("build", config.partition))
    return Queue()
'''


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """What the launcher `queue` of an installed package is asked for."""
    (tmp_path / "my_queue.py").write_text(LAUNCHER)
    info = tmp_path / "my_queue-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_queue\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[driftline.launchers]\nqueue = my_queue\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    launchers.cache_clear()
    found: list[tuple[str, Any]] = import_module("my_queue").CALLS
    yield found
    launchers.cache_clear()
    sys.modules.pop("my_queue", None)


def test_a_service_with_a_launcher_of_another_package(tmp_path: Path, calls: list[tuple[str, Any]]) -> None:
    config = tmp_path / "queue.yaml"
    config.write_text("partition: long\n")
    settings = {"HOME": tmp_path / "home", "LAUNCHER": "queue", "LAUNCHER_CONFIG": config, "MLFLOW_URL": "none"}
    given = read_service({f"DRIFTLINE_{name}": str(value) for name, value in settings.items()})
    service = Service(given, host="127.0.0.1", port=0, per_project=1)
    try:
        token = (tmp_path / "home" / "admin-token").read_text().strip()
        with EveryClient(service.url, token) as client:
            first, second = client.create(STUDY).id, client.create({**STUDY, "name": "another"}).id
            why = "waits for another study of its project: 1 at a time"  # and not for the cluster, which is its own
            until(lambda: client.study(second).reason == why)
            until(lambda: {("start", first), ("kill", first)} <= set(calls))  # it did not take its study in 0 s
            with pytest.raises(InvalidSpec, match="must be one of long, short, got gpu"):
                client.create({**STUDY, "resources": {"pool": "gpu"}})  # the launcher's pools
    finally:
        service.close()
    assert calls[0] == ("build", "long")
    assert calls[-1][0] == "end"  # its drivers need the API, which ends with this process
    assert calls[-1][1] > 0
