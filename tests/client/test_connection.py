"""The client without a network: what it sends, what it sends again, and what its errors are."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from driftline.client.connection import LONGEST_PAUSE_S
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

STUDY = {
    "id": "s1",
    "name": "small",
    "spec": {},
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
}
Handler = Callable[[httpx.Request], httpx.Response]


def client(handler: Handler, waits: list[float] | None = None, **options: Any) -> EveryClient:
    pauses = waits if waits is not None else []
    return EveryClient(
        "http://tuner/", "secret", transport=httpx.MockTransport(handler), sleep=pauses.append, **options
    )


def failing(
    times: int, failure: Callable[[], httpx.Response], answer: Any = STUDY
) -> tuple[Handler, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return failure() if len(seen) <= times else httpx.Response(200, json=answer)

    return handle, seen


def refused() -> httpx.Response:
    raise httpx.ConnectError("connection refused")


def timed_out() -> httpx.Response:
    raise httpx.ReadTimeout("slow")


def test_it_sends_its_token_and_takes_records_back() -> None:
    handle, seen = failing(0, refused)
    with client(handle) as api:
        assert api.study("s1").name == "small"
    assert seen[0].headers["authorization"] == "Bearer secret"
    assert str(seen[0].url) == "http://tuner/v1/studies/s1"


def test_ids_are_quoted() -> None:
    handle, seen = failing(0, refused)
    with client(handle) as api:
        api.study("a/b?c")
    assert seen[0].url.raw_path == b"/v1/studies/a%2Fb%3Fc"


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


def test_a_study_is_created_once_although_it_is_sent_twice() -> None:
    handle, seen = failing(1, timed_out)
    with client(handle) as api:
        api.create({"name": "small"})
        api.create({"name": "small"})
    keys = [request.headers["idempotency-key"] for request in seen]
    assert keys[0] == keys[1] != keys[2]
    assert [json.loads(request.content) for request in seen] == [{"name": "small"}] * 3


def test_trials_are_retried_once_although_it_is_sent_twice() -> None:
    handle, seen = failing(1, timed_out)
    with client(handle) as api:
        api.retry("s1", ["s1.fedavg.s00003"])
        api.retry("s1", key="mine")
    keys = [request.headers["idempotency-key"] for request in seen]
    assert keys[0] == keys[1] != keys[2] == "mine"
    assert [json.loads(request.content)["trials"] for request in seen] == [["s1.fedavg.s00003"]] * 2 + [[]]
    assert {request.url.path for request in seen} == {"/v1/studies/s1:retry"}


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


def test_it_walks_all_pages() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        token = request.url.params.get("page_token")
        assert request.url.params["label"] == "a"
        number = {None: 0, "t1": 1, "t2": 2}[token]
        trial = {
            "id": f"s1.a.s0000{number}", "study_id": "s1", "label": "a", "phase": "search", "number": number, "seed": 0,
            "configuration": number,
            "hyperparameters": {}, "created_at": STUDY["created_at"], "updated_at": STUDY["updated_at"],
        }  # fmt: skip
        following = {0: "t1", 1: "t2", 2: None}[number]
        return httpx.Response(200, json={"trials": [trial], "next_page_token": following})

    with client(handle) as api:
        assert [trial.number for trial in api.trials("s1", label="a")] == [0, 1, 2]


def test_many_curves_are_asked_for_in_parts() -> None:
    sizes = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked = request.url.params.get_list("trial")
        sizes.append(len(asked))
        return httpx.Response(200, json={"curves": {trial: {"round": []} for trial in asked}, "next_page_token": None})

    trials = [f"t{number}" for number in range(120)]
    with client(handle) as api:
        assert list(api.curves("s1", trials)) == trials
    assert sizes == [50, 50, 20]


def event(number: int, kind: str = "log") -> str:
    body = {"id": number, "study_id": "s1", "kind": kind, "data": {}, "created_at": STUDY["created_at"]}
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(body)}\n\n"


def test_a_broken_stream_is_taken_up_where_it_broke() -> None:
    parts = [
        "retry: 1000\n\n" + event(1) + event(2),  # ends without saying so
        httpx.ConnectError("refused"),
        httpx.Response(503),
        ": still here\n\n" + event(3),
        "event: end\ndata: {}\n\n",
    ]
    positions = []

    def handle(request: httpx.Request) -> httpx.Response:
        positions.append(request.headers["last-event-id"])
        part = parts[len(positions) - 1]
        if isinstance(part, Exception):
            raise part
        return part if isinstance(part, httpx.Response) else httpx.Response(200, text=part)

    waits: list[float] = []
    with client(handle, waits) as api:
        assert [one.id for one in api.events("s1")] == [1, 2, 3]
    assert positions == ["0", "2", "2", "2", "3"]
    assert len(waits) == 4


def test_a_stream_that_stays_away() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=": nothing\n\n")

    with client(handle, patience_s=0.0) as api, pytest.raises(Unavailable, match="ended too early"):
        list(api.events("s1"))


def test_a_quiet_study_is_followed_over_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy may end each connection after a while: a heartbeat is an answer, however long nothing happens."""
    now, connections = 0.0, 0
    monkeypatch.setattr("driftline.client.api_client.time", SimpleNamespace(monotonic=lambda: now))

    def handle(request: httpx.Request) -> httpx.Response:
        nonlocal now, connections
        now, connections = now + 60.0, connections + 1
        return httpx.Response(200, text=": still here\n\n" if connections < 5 else "event: end\ndata: {}\n\n")

    with client(handle, patience_s=15.0) as api:
        assert list(api.events("s1")) == []
    assert connections == 5


def test_a_stream_that_is_refused_is_not_asked_again() -> None:
    handle, seen = failing(9, lambda: httpx.Response(404, json=problem(NotFound("no study 's1'"))))
    with client(handle) as api, pytest.raises(NotFound):
        list(api.events("s1"))
    assert len(seen) == 1


def test_ready() -> None:
    handle, _ = failing(1, refused)
    with client(handle) as api:
        assert not api.ready()
        assert api.ready()


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
