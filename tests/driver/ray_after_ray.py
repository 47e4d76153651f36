"""One process, several Rays, each under other settings: Driftline's own ones and those of the program around it."""

import contextlib
import http.client
import os
import socket
import sys
import urllib.request
from pathlib import Path

import ray

from service.driver.ray import cluster, mutex
from tests.driver import small_ray
from tests.waiting import until


class _Named:
    def number(self) -> int:
        return 7


NAMED = {44217, 44227}
"""The ports that docs/service.md names, at which a Ray's autoscaler and dashboard show their own metrics."""


def listening() -> set[int]:
    """Ports on which processes of Ray's current session, and their children, listen for other machines."""
    ports: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].rpartition(":")
            if fields[3] == "0A" and address != "0100007F":
                ports[f"socket:[{fields[9]}]"] = int(port, 16)
    session = ray.get_runtime_context().get_session_name().encode()
    held: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may have ended
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if any(session in (one / "cmdline").read_bytes() for one in (process, Path("/proc", parent))):
                held |= {os.readlink(descriptor) for descriptor in (process / "fd").iterdir()}
    return {ports[name] for name in held & ports.keys()}


def shows_metrics(port: int) -> bool:
    """Whether anybody in the network can read metrics there."""
    host = socket.gethostbyname(socket.gethostname())
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def own() -> None:
    """A Ray of Driftline's, with a token that nobody else knows: an actor of it answers, no node shows metrics."""
    with cluster.connect("study", None, lambda line: None, num_cpus=1), mutex.alone("study", lambda line: None):
        assert ray.get(ray.remote(num_cpus=0)(_Named).remote().number.remote(), timeout=60) == 7
        until(lambda: len(listening()) >= 7, why=listening)  # all of Ray's processes listen; with metrics it would be 8
        assert {port for port in listening() if shows_metrics(port)} <= NAMED


def around(folder: str, **variables: str) -> None:
    """A Ray that the program around Driftline starts for itself."""
    os.environ.update(variables)
    small_ray.start(folder, 1)
    actor = ray.remote(num_cpus=0)(_Named).options(name="named").remote()
    assert ray.get(actor.number.remote(), timeout=60) == 7
    ray.shutdown()


if __name__ == "__main__":
    os.environ.pop("RAY_AUTH_MODE", None)
    own()
    around(sys.argv[1], RAY_AUTH_MODE="disabled")
    del os.environ["RAY_AUTH_MODE"]
    own()
    around(sys.argv[1])  # Ray makes a token of its own, in the home folder
    own()
    print("all answered")
