"""Clients that send slowly, without a token, or more than is read: they get early answers and delay nobody."""

import functools
import json
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from service.api import app as app_module
from service.api.rate_limits import Limits
from service.api.request_bodies import BodyLimit
from service.store.store import Store
from tests.waiting import until

from .api_setup import Service, running
from .conftest import SPEC

LARGE = 32 * 2**20
FOREVER_S = 60.0


@pytest.fixture
def service(sqlite_store: Store) -> Iterator[Service]:
    with running(sqlite_store, loopback=True) as started:
        yield started


class Wire:
    """A connection on which bytes are sent one wants, and answers read."""

    def __init__(self, service: Service) -> None:
        host, _, port = service.server.url.removeprefix("http://").rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=FOREVER_S)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def head(self, path: str, *lines: str, method: str = "POST", token: str | None = None, begun: bytes = b"") -> None:
        """A request's head, and with it what has begun of the body."""
        known = [f"Authorization: Bearer {token}"] if token else []
        text = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *known, *lines])
        self.send(text.encode() + b"\r\n\r\n" + begun)

    def answer(self) -> tuple[int, str]:
        """Status and all that came with it; a body of a length that was not given ends with the connection."""
        raw = b""
        while b"\r\n\r\n" not in raw:
            more = self._socket.recv(65536)
            assert more, f"the connection was closed after {raw!r}"
            raw += more
        start, _, body = raw.partition(b"\r\n\r\n")
        lengths = [line for line in start.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        while len(body) < int(lengths[0].split(b":")[1]):
            body += self._socket.recv(65536)
        return int(start.split()[1]), (start + body).decode()

    def closed(self) -> bool:
        """Whether the service has closed it; waits for that."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True


# ---- nobody without a token has a body read


@pytest.mark.parametrize("token", [None, "wrong"])
@pytest.mark.parametrize("lines", [(f"Content-Length: {LARGE}",), ("Transfer-Encoding: chunked",)])
def test_a_body_is_not_waited_for_without_a_token(service: Service, token: str | None, lines: tuple[str]) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    for path in ("/v1/studies", f"/v1/studies/{study}/reports", f"/v1/studies/{study}/logs", "/v1/tokens"):
        with Wire(service) as wire:
            wire.head(path, *lines, token=token)  # and nothing of the body, ever
            status, text = wire.answer()
        assert status == 401
        assert "www-authenticate: bearer" in text.lower()
        assert "application/problem+json" in text


def test_a_large_body_without_a_token_costs_no_memory(service: Service) -> None:
    piece = b" " * 65536
    with Wire(service) as wire:
        tracemalloc.start()
        try:
            wire.head("/v1/studies", f"Content-Length: {LARGE}")
            status, _ = wire.answer()
            for _ in range(LARGE // len(piece)):
                wire.send(piece)
            wire.head("/healthz", method="GET")  # the same connection serves the next request
            assert wire.answer()[0] == 200
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert status == 401
    assert most < LARGE / 8


def test_a_token_that_was_used_too_often_has_no_body_read(sqlite_store: Store) -> None:
    limits = Limits(requests_per_second=0.001, burst=2)
    with running(sqlite_store, loopback=True, limits=limits) as service:
        with service.http() as http:  # each request takes one, although routes ask again who it is
            assert http.post("/v1/studies", json=SPEC).status_code == 201
            assert http.post("/v1/studies", json=SPEC).status_code == 201
        with Wire(service) as wire:
            wire.head("/v1/studies", f"Content-Length: {LARGE}", token="all")
            assert wire.answer()[0] == 429


# ---- nobody is waited for without end


def test_a_body_that_does_not_come_is_answered(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "BodyLimit", functools.partial(BodyLimit, patience_s=0.2))
    with running(sqlite_store, loopback=True) as service, Wire(service) as wire:
        wire.head("/v1/studies", "Content-Length: 100", token="all", begun=b'{"name"')
        status, text = wire.answer()
        assert status == 408
        assert "application/problem+json" in text
        assert "within 0.2 s" in text
        assert wire.closed()
    assert sqlite_store.studies.find() == []


def test_a_body_that_comes_in_pieces_is_taken(service: Service) -> None:
    body = json.dumps(SPEC).encode()
    with Wire(service) as wire:
        wire.head("/v1/studies", f"Content-Length: {len(body)}", token="all")
        for start in range(0, len(body), 100):
            wire.send(body[start : start + 100])
        assert wire.answer()[0] == 201


PART = b"GET /healthz HTTP/1.1\r\nHost: "


def test_slow_clients_delay_nobody_and_end_with_the_service(sqlite_store: Store) -> None:
    """The service has no time limits for them, which are the task of a proxy; each costs one connection."""
    with ExitStack() as slow:
        with running(sqlite_store, loopback=True) as service:
            heads = [slow.enter_context(Wire(service)) for _ in range(20)]
            for wire in heads:
                wire.send(PART)
            bodies = [slow.enter_context(Wire(service)) for _ in range(20)]
            for wire in bodies:
                wire.head("/v1/studies", "Transfer-Encoding: chunked")
                assert wire.answer()[0] == 401  # and the body goes on
            silent = [slow.enter_context(Wire(service)) for _ in range(20)]
            with service.http() as http:
                assert http.post("/v1/studies", json=SPEC).status_code == 201
            until(lambda: len(service.server._server.server_state.connections) >= 60)
            heads[0].send(b"x\r\n\r\n")
            assert heads[0].answer()[0] == 200
        assert all(wire.closed() for wire in [*heads, *bodies, *silent])


# ---- answers in two parts leave at once


def test_answers_do_not_wait_for_acknowledgements(service: Service) -> None:
    """Nagle's algorithm is off on accepted connections: it would hold the second part of an answer for 40 ms."""
    with Wire(service) as wire:
        wire.head("/healthz", method="GET")
        assert wire.answer()[0] == 200
        (connection,) = service.server._server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
