"""The client's connection without a network: what it sends again, how long, and what its errors are."""

import threading
from collections.abc import Callable
from types import SimpleNamespace

import httpx
import pytest

from driftline.client.connection import LONGEST_PAUSE_S, Connection
from driftline.errors import (
    Conflict,
    DriftlineError,
    InvalidSpec,
    NotFound,
    StaleDriver,
    Unauthorized,
    Unavailable,
    problem,
)
from driftline.wire.access import NewToken
from tests.clients import EveryClient

from .mocked import STUDY, client, failing, refused, timed_out


def test_it_sends_its_token_and_takes_records_back() -> None:
    handle, seen = failing(0, refused)
    with client(handle) as api:
        assert api.study("s1").name == "small"
    assert seen[0].headers["authorization"] == "Bearer secret"
    assert str(seen[0].url) == "http://tuner/v1/studies/s1"


def test_an_address_begins_with_http() -> None:
    with pytest.raises(InvalidSpec, match=r"^url: must start with http:// or https://, got 'localhost:8080'$"):
        Connection("localhost:8080")


@pytest.mark.parametrize("token", ["sec\nret", "sec ret", "secrét", "# a study\nname: small\n"])
def test_a_token_is_one_word_of_ascii_and_is_not_shown(token: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^token: must be one line of ASCII") as caught:
        Connection("http://tuner", token=token)
    assert token.split()[0] not in str(caught.value)


@pytest.mark.parametrize(
    "failure", [refused, timed_out, *(lambda status=status: httpx.Response(status) for status in (429, 502, 503, 504))]
)
def test_what_cannot_be_answered_for_now_is_sent_again(failure: Callable[[], httpx.Response]) -> None:
    waits: list[float] = []
    handle, seen = failing(3, failure)
    with client(handle, waits) as api:
        assert api.pause("s1").id == "s1"
    assert len(seen) == 4
    for number, wait in enumerate(waits):
        assert 0.05 * 2**number <= wait <= 0.1 * 2**number


def test_a_refused_request_leaves_the_connection_that_may_always_lead_to_the_same_replica() -> None:
    handle, seen = failing(2, lambda: httpx.Response(503))
    with client(handle) as api:
        api.study("s1")
        api.study("s1")
    assert [request.headers["connection"] for request in seen] == ["keep-alive", "close", "close", "keep-alive"]


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(
        "driftline.client.connection.time", SimpleNamespace(monotonic=lambda: now[0])
    )  # this clock alone
    handle, _ = failing(1000, refused)
    api = EveryClient("http://tuner", transport=httpx.MockTransport(handle), sleep=sleep, patience_s=60)
    with api, pytest.raises(Unavailable, match="no answer from http://tuner: connection refused"):
        api.study("s1")
    assert 50 < sum(waits) <= 60
    assert LONGEST_PAUSE_S / 2 <= max(waits) <= LONGEST_PAUSE_S


def test_a_long_wait_is_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.client.connection.WAIT_S", 0.01)
    announced = threading.Event()
    urls: list[str] = []

    def on_wait(url: str) -> None:
        urls.append(url)
        announced.set()

    def handle(request: httpx.Request) -> httpx.Response:
        assert announced.wait(60)
        return httpx.Response(200, json=STUDY)

    with client(handle, on_wait=on_wait) as api:
        assert api.study("s1").name == "small"
        assert api.study("s1").name == "small"
    assert urls == ["http://tuner"]


def test_a_quick_answer_is_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.client.connection.WAIT_S", 3600.0)
    urls: list[str] = []
    handle, _ = failing(0, refused)
    with client(handle, on_wait=urls.append) as api:
        assert api.study("s1").name == "small"
    assert urls == []
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers if timer.interval == 3600.0)


@pytest.mark.parametrize(
    "error",
    [
        InvalidSpec("methods[0].name", "must be known, got 'fedavf'"),
        NotFound("no study 's1'"),
        Conflict("it is finished", state="FAILED"),
        StaleDriver("attempt 2 does"),
        Unauthorized("no token"),
        DriftlineError("it failed"),
    ],
)
def test_errors_come_back_as_they_were_raised(error: DriftlineError) -> None:
    handle, seen = failing(9, lambda: httpx.Response(error.status, json=problem(error)))
    with client(handle) as api, pytest.raises(DriftlineError) as caught:
        api.study("s1")
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert caught.value.details == error.details
    assert len(seen) == 1  # not sent again


def test_answers_of_strangers() -> None:
    for status, kind in ((404, NotFound), (401, Unauthorized), (500, DriftlineError)):
        handle, _ = failing(9, lambda status=status: httpx.Response(status, text="<html>proxy</html>"))
        with client(handle) as api, pytest.raises(kind):
            api.study("s1")


@pytest.mark.parametrize("status", [429, 503])
def test_a_service_that_says_when_is_not_asked_before(status: int) -> None:
    handle, seen = failing(2, lambda: httpx.Response(status, headers={"Retry-After": "3"}))
    waits: list[float] = []
    with client(handle, waits) as api:
        assert api.study("s1").name == "small"
    assert len(seen) == 3
    assert all(3.0 <= wait <= 3.6 for wait in waits)
    dated = httpx.Response(503, headers={"Retry-After": "Fri, 31 Dec 2027 23:59:59 GMT"})
    handle, _ = failing(1, lambda: dated)
    with client(handle, waits) as api:
        api.study("s1")
    assert waits[-1] < 1  # a date is not waited for


def test_a_service_that_wants_more_patience_than_there_is() -> None:
    handle, seen = failing(9, lambda: httpx.Response(429, json={"detail": "slow down"}, headers={"Retry-After": "60"}))
    with client(handle) as api, pytest.raises(Unavailable, match="slow down"):
        api.study("s1")
    assert len(seen) == 1


def test_a_token_is_asked_for_once() -> None:
    handle, seen = failing(1, lambda: httpx.Response(503))
    with client(handle) as api, pytest.raises(Unavailable):
        api.make_token(NewToken(name="laptop"))
    assert len(seen) == 1
    with client(lambda request: refused()) as api, pytest.raises(Unavailable, match="no answer"):
        api.make_token(NewToken(name="laptop"))
