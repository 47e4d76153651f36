"""The service over a real Ray cluster of several nodes, through the Ray Jobs API, while parts of it are killed."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from service.server.compose import Service
from service.settings import read_service
from tests.clients import EveryClient
from tests.commands.processes import SMALL
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(1200)]

RAY = str(Path(sys.executable).with_name("ray"))
ROUNDS = 6000
"""Of each trial: on a fast machine, too, some train when a node dies. Three packs train, on three nodes at most."""

STUDY = {
    **SMALL,
    "name": "over-ray-jobs",
    "budget": {"trials_per_method": 6, "rounds": ROUNDS, "seeds": 0},
    "resources": {"gpu": 0, "packs": 2},
}


class Cluster:
    """A private Ray cluster on this machine: a head without CPUs, and nodes; all reached with a random token only."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rj", dir="/tmp"))  # its sockets need a short path
        self.token = secrets.token_hex(16)
        self._port, dashboard, agent = (free_port() for _ in range(3))
        self.dashboard = f"http://127.0.0.1:{dashboard}"
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("DRIFTLINE_", "RAY_"))}
        self._environment = {
            **plain,
            "PATH": f"{Path(sys.executable).parent}:{plain['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_worker_niceness": "0",  # see tests/conftest.py
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_failure_threshold": "10",  # seconds: a busy machine is not a dead node
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start(
            "--head", f"--port={self._port}", f"--temp-dir={self.folder}", "--include-dashboard=true",
            "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}",
            "--num-cpus=0",
        )  # fmt: skip
        until(lambda: self.alive() == 1, 120, self.said)

    def add_node(self) -> subprocess.Popen[bytes]:
        """A further node with one CPU, which lives: of two that start at once one may take the other for itself."""
        agent = free_port()
        node = f"--address=127.0.0.1:{self._port}", f"--dashboard-agent-listen-port={agent}", "--num-cpus=1"
        before = until(self.alive, 120, self.said)  # 0: nobody has answered
        started = self._start(*node)
        until(lambda: self.alive() > before, 120, self.said)
        return started

    def end(self) -> None:
        for process in reversed(self.processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [RAY, "start", *options, "--object-store-memory=100000000", "--disable-usage-stats", "--block"]
        with (self.folder / f"start{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True, cwd=self.folder
            )
        self.processes.append(process)
        return process

    def alive(self) -> int:
        """How many nodes live."""
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            nodes = httpx.get(f"{self.dashboard}/api/v0/nodes", headers=headers, timeout=20)
        except httpx.TransportError:
            return 0
        if nodes.status_code != 200:
            return 0
        return sum(node["state"] == "ALIVE" for node in nodes.json()["data"]["result"]["result"])

    def said(self) -> str:
        """What the nodes printed."""
        return "\n".join(log.read_text()[-2000:] for log in sorted(self.folder.glob("start*.log")))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def service(cluster: Cluster, tmp_path: Path) -> Iterator[Service]:
    config = tmp_path / "launcher.yaml"
    token = tmp_path / "ray-token"
    token.write_text(cluster.token)
    settings = {
        "address": cluster.dashboard,
        "auth": "token",
        "token_file": str(token),
        "environment": {"OMP_NUM_THREADS": "1"},
        "node_seconds": 100,
        "stop_seconds": 20,
    }
    config.write_text(yaml.safe_dump(settings))
    variables = {
        "DRIFTLINE_HOME": str(tmp_path / "home"),
        "DRIFTLINE_ADMIN_TOKEN": "admin",
        "DRIFTLINE_LAUNCHER": "ray_jobs",
        "DRIFTLINE_LAUNCHER_CONFIG": str(config),
        "DRIFTLINE_MLFLOW_URL": "none",
        "DRIFTLINE_SILENT_SECONDS": "5",
    }
    made = Service(read_service(variables), host="127.0.0.1", port=0)
    yield made
    made.close()


def driver_pid(service: Service, study: str) -> int:
    """Process of the driver that holds the study, as it told the store."""
    import sqlite3

    with sqlite3.connect(service._settings.home / "driftline.db") as database:
        (holder,) = database.execute("SELECT holder FROM drivers WHERE study_id = ?", (study,)).fetchone()
    return int(holder.rpartition("/")[2])


def workers(cluster: Cluster) -> list[int]:
    """Processes of this cluster that train packs."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ours = f"RAY_AUTH_TOKEN={cluster.token}".encode() in (entry / "environ").read_bytes()
            if ours and b"ray::Worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def test_a_driver_that_hangs_with_its_workers_is_replaced(cluster: Cluster, service: Service) -> None:
    cluster.add_node()
    with EveryClient(service.url, "admin") as client:
        study = client.create(SMALL).id
        until(lambda: any(trial.rounds_done for trial in client.trials(study)), 200)
        stopped = [driver_pid(service, study), *workers(cluster)]
        assert len(stopped) > 1
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: client.study(study).finished, 600)
        assert client.study(study).state == "SUCCEEDED", client.study(study).reason
        assert all(curve["round"] == list(range(3001)) for curve in client.curves(study).values())
        assert {line.attempt for line in client.logs(study)} == {1, 2}
        for pid in stopped:
            with pytest.raises(FileNotFoundError):
                Path(f"/proc/{pid}/environ").read_bytes()


def test_a_study_survives_its_driver_and_a_node(cluster: Cluster, service: Service) -> None:
    nodes = [cluster.add_node(), cluster.add_node()]
    with EveryClient(service.url, "admin") as client:

        def rounds() -> int:
            return sum(trial.rounds_done for trial in client.trials(study))

        def told() -> str:
            return (
                "\n".join(line.text for line in client.logs(study)[-30:])
                + f"\n{client.study(study)}\n{cluster.alive()} nodes live"
            )

        study = client.create(STUDY).id
        until(lambda: rounds() > 0, 200, told)
        os.kill(driver_pid(service, study), signal.SIGKILL)
        until(lambda: client.study(study).reason.startswith("the driver was lost"), 120, told)
        done = rounds()
        until(lambda: rounds() > done, 200, told)
        os.killpg(nodes[0].pid, signal.SIGKILL)
        until(lambda: client.study(study).finished, 500, told)
        record = client.study(study)
        assert record.state == "SUCCEEDED", told()
        trials = client.trials(study)
        assert [trial.state for trial in trials] == ["COMPLETE"] * 6
        assert max(trial.attempt for trial in trials) > 1
        curves = client.curves(study)
        assert all(curve["round"] == list(range(ROUNDS + 1)) for curve in curves.values())  # none missing, none twice
        assert {line.attempt for line in client.logs(study)} == {1, 2}
