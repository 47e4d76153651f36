"""Event streams and the server in a thread: resumed where they broke, ended when the study has."""

import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.errors import NotFound, Unavailable
from service.api.event_streams import StreamPace
from service.store.store import Store
from tests.waiting import until

from .api_setup import Service, running
from .conftest import SPEC


@pytest.fixture
def service(sqlite_store: Store) -> Iterator[Service]:
    with running(sqlite_store, pace=StreamPace(heartbeat_s=0.15, poll_s=0.02)) as started:
        yield started


def lines(service: Service, study: str, last: int | None = None) -> Iterator[str]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with service.http() as http, http.stream("GET", f"/v1/studies/{study}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in response.headers
        assert response.headers["x-accel-buffering"] == "no"
        yield from response.iter_lines()


def test_a_stream_as_it_is_on_the_wire(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    service.store.studies.intend(study, "cancel")
    received = list(lines(service, study))
    assert [line for line in received if line.startswith(("id", "event", "retry"))] == [
        "retry: 1000",
        "id: 1",
        "event: state",
        "id: 2",
        "event: state",
        "event: end",
    ]
    assert '"state":"CANCELLED"' in next(line for line in received if "CANCELLED" in line)


def test_silence_is_broken_by_heartbeats(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    heard = []
    for line in lines(service, study):
        if line.startswith(":"):
            heard.append(line)
        if len(heard) == 2:
            break
    assert heard == [": still here"] * 2


def test_a_stream_of_an_unknown_study_and_a_wrong_position(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with service.client() as client, service.http() as http:
        with pytest.raises(NotFound):
            list(client.events("none"))
        for wrong in ("x", "-1", str(2**63)):
            assert http.get(f"/v1/studies/{study}/events", headers={"Last-Event-ID": wrong}).status_code == 400


# ---- the server


def test_the_socket_is_private_and_goes_away(sqlite_store: Store) -> None:
    before = threading.active_count()
    with running(sqlite_store) as service:
        path = service.server.socket
        assert len(str(path)) < 100
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with service.client() as client:
            assert client.ready()
    assert not path.parent.exists()
    until(lambda: threading.active_count() <= before)


def test_stopping_ends_open_streams_at_once(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    received: list[str] = []
    thread = threading.Thread(target=lambda: received.extend(lines(service, study)))
    thread.start()
    until(lambda: received)  # it is connected
    server = service.server._server
    server.config.timeout_graceful_shutdown = None  # what does not end by itself has to be forced
    service.server.close()
    thread.join(60)
    assert not thread.is_alive()
    assert not server.force_exit
    assert "event: end" not in received  # the study has not ended: a client comes back


def test_signal_handlers_are_left_alone(sqlite_store: Store) -> None:
    import signal

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with running(sqlite_store):
        assert {number: signal.getsignal(number) for number in before} == before
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short folder of our own for temporary files."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_a_server_that_cannot_start_says_so(
    sqlite_store: Store, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uvicorn

    def fail(self: object, sockets: object = None) -> None:
        raise OSError("no more files")

    monkeypatch.setattr(uvicorn.Server, "run", fail)
    with pytest.raises(Unavailable, match="in this process: no more files"), running(sqlite_store):
        pass
    assert not list(temporary.iterdir())
