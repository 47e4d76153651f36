"""Waiting for a cluster that does not accept connections; no Ray is started."""

import errno
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from driftline.errors import InvalidSpec, Unavailable
from service.driver.lifecycle import DriverOptions, run_driver
from service.driver.ray import cluster, cluster_address, mutex
from tests.driver.store_client import StoreClient, quadratic
from tests.ports import free_port


def test_an_address_where_nothing_listens_is_refused_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutex, "TURN_S", 0.2)
    monkeypatch.setattr(cluster_address, "_LOOK_S", 0.05)
    lines: list[str] = []
    port = free_port()
    with pytest.raises(Unavailable) as caught:
        cluster_address.wait(f"ray://127.0.0.1:{port}", lines.append)
    refused = f"[Errno {errno.ECONNREFUSED}] Connection refused"
    start = f"Ray at ray://127.0.0.1:{port} must accept connections, got {refused}"
    assert str(caught.value) == (
        f"{start} from 127.0.0.1 port {port} for 0 s: start the cluster, or correct --ray-address or "
        "DRIFTLINE_RAY_ADDRESS"
    )
    assert lines == [f"{start} from 127.0.0.1 port {port}: trying again for up to 0 s ..."]


def test_a_cluster_that_comes_back_is_awaited() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", free_port()))
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
        cluster_address.wait(address, lambda line: server.listen())


@pytest.mark.parametrize("address", ["head", "head:", "head:dashboard", "head:99999", "ray://head", "head..svc:6379"])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidSpec, match="must be host:port, ray://host:port, auto or local, got"):
        cluster_address.wait(address, print)


def test_auto_means_the_address_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "[2001:db8::1]:6379")
    assert cluster_address._target("auto") == ("2001:db8::1", 6379)


def test_a_driver_that_is_told_to_stop_waits_no_longer(
    client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: Any) -> None:
        raise AssertionError("Ray's own attempts to connect cannot be ended")

    monkeypatch.setattr(cluster, "_connected", lambda: False)  # other tests of this folder may share a Ray
    monkeypatch.setattr(cluster, "_ray", lambda: SimpleNamespace(init=init))
    study_id, stop = client.submit(quadratic()), threading.Event()
    options = DriverOptions(tmp_path, address=f"127.0.0.1:{free_port()}", progress=lambda line: stop.set())
    assert run_driver(client, study_id, stop, options) == "PAUSED"
    assert client.store.leases.driven()[0].deaths == 0
