"""A database connection that stalls: nothing is closed, nothing arrives. PostgreSQL behind a proxy that stops."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from driftline.errors import Unavailable
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from driftline.wire.ids import holder
from service.store import postgresql as connections
from service.store.store import Store
from tests.service.conftest import SPEC, Postgresql, new_trials, postgresql

__all__ = ["postgresql"]


class Proxy:
    """Passes bytes between a port of this machine and a unix socket; may stop, with all connections left open."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.flowing = threading.Event()
        self.flowing.set()
        self._over = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over = True
        self.flowing.set()
        self._thread.join()
        for each in [self._listener, *self._pairs]:
            each.close()

    def _run(self) -> None:
        ready = selectors.DefaultSelector()
        ready.register(self._listener, selectors.EVENT_READ)
        while not self._over:
            self.flowing.wait()
            for key, _ in ready.select(0.05):
                if not self.flowing.is_set():
                    break
                near = key.fileobj
                assert isinstance(near, socket.socket)
                if near is self._listener:
                    client, _ = near.accept()
                    server = socket.socket(socket.AF_UNIX)
                    server.connect(self._target)
                    self._pairs |= {client: server, server: client}
                    ready.register(client, selectors.EVENT_READ)
                    ready.register(server, selectors.EVENT_READ)
                    continue
                if near not in self._pairs:  # closed with its other end, a moment ago
                    continue
                with contextlib.suppress(OSError):
                    data = near.recv(65536)
                    if data:
                        self._pairs[near].sendall(data)
                        continue
                for one in (near, self._pairs.pop(near)):
                    self._pairs.pop(one, None)
                    ready.unregister(one)
                    one.close()
        ready.close()


@pytest.fixture
def proxied(postgresql: Postgresql) -> Iterator[tuple[str, Proxy]]:
    """URL of an emptied database behind a proxy, and the proxy."""
    direct = sa.make_url(postgresql.emptied())
    proxy = Proxy(f"{direct.query['host']}/.s.PGSQL.5432")
    through = sa.URL.create("postgresql", direct.username, direct.password, "127.0.0.1", proxy.port, direct.database)
    yield through.render_as_string(hide_password=False), proxy
    proxy.close()


def test_a_stalled_connection_is_given_up_and_the_study_goes_on(
    proxied: tuple[str, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, proxy = proxied
    monkeypatch.setattr(connections, "CONNECT_S", 2)
    monkeypatch.setattr(connections, "ANSWER_S", 2.0)  # what flows is answered in time, on a busy machine too
    store = Store(url)
    study = store.studies.create(SPEC, "f" * 64).id
    attempt = store.leases.acquire(study, holder()).attempt
    (trial,) = store.trials.create(study, attempt, new_trials("fedavg", 1))
    store.trials.start_pack(study, attempt, "p", [trial.id])

    def report(number: int) -> None:
        columns = {"round": [number], "train_loss": [1.0 / (1 + number)]}
        store.curves.report(
            study, Report(attempt=attempt, pack="p", reports={trial.id: encode(columns)}, rounds_done=number)
        )

    report(0)
    proxy.flowing.clear()
    began = time.monotonic()
    for _ in range(2):  # a connection from the pool, and a new one
        with pytest.raises(Unavailable, match=r"no answer came within|timeout expired|timed out"):
            report(1)
    with pytest.raises(Unavailable):
        store.ready()
    assert time.monotonic() - began < 30
    proxy.flowing.set()
    deadline = time.monotonic() + 60
    while True:
        try:
            report(1)
            break
        except Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert store.curves.columns(study)[trial.id] == {"round": [0, 1], "train_loss": [1.0, 0.5]}
    store.close()
