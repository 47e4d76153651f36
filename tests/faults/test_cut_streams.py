"""A reader of events whose connection breaks again and again: it misses nothing and sees nothing twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from driftline.wire.records import Event
from service.store.store import Store
from tests.clients import EveryClient
from tests.service.api_setup import running
from tests.service.conftest import SPEC

CUTS = 30


class Breaking(httpx.SyncByteStream):
    """An answer's body that breaks off after some pieces, anywhere within a line."""

    def __init__(self, stream: httpx.SyncByteStream, length: int) -> None:
        self._stream = stream
        self._left = length

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            yield piece[: self._left]
            self._left -= len(piece)
            if self._left <= 0:
                raise httpx.ReadError("the connection broke")

    def close(self) -> None:
        self._stream.close()


class BreakingTransport(httpx.HTTPTransport):
    """Breaks the first streams of events, each after more bytes than the last."""

    def __init__(self, socket: str | None) -> None:
        super().__init__(uds=socket)
        self.cuts = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if request.url.path.endswith("/events") and self.cuts < CUTS:
            self.cuts += 1
            assert isinstance(answer.stream, httpx.SyncByteStream)
            answer.stream = Breaking(answer.stream, 60 + 9 * self.cuts)
        return answer


@pytest.mark.timeout(120)
def test_a_reader_that_is_cut_off_again_and_again_misses_and_repeats_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "driftline.db")
    study = store.studies.create(SPEC, "f" * 64).id
    seen: list[Event] = []
    with running(store) as service:
        transport = BreakingTransport(str(service.server.socket) if service.server.socket else None)

        def follow() -> None:
            with EveryClient(service.server.url, "all", transport=transport, sleep=lambda _: None) as client:
                seen.extend(client.events(study))

        reader = threading.Thread(target=follow)
        reader.start()
        for number in range(3 * CUTS):
            store.events.log(study, "info", f"line {number}")
            time.sleep(0.005)
        store.studies.intend(study, "cancel")
        reader.join(90)
        assert not reader.is_alive()
    assert transport.cuts == CUTS
    assert [event.id for event in seen] == [event.id for event in store.events.read(study)]
    assert len(seen) == 3 * CUTS + 2
    store.close()
