"""What the client asks of the API: keys, pages, parts and event streams."""

import json
from collections.abc import Callable
from types import SimpleNamespace

import httpx
import pytest

from driftline.errors import NotFound, Unavailable, problem
from tests.wire.made_records import trial_record

from .mocked import STUDY, client, failing, refused, timed_out


def test_ids_are_quoted() -> None:
    handle, seen = failing(0, refused)
    with client(handle) as api:
        api.study("a/b?c")
    assert seen[0].url.raw_path == b"/v1/studies/a%2Fb%3Fc"


def test_a_study_is_created_once_although_it_is_sent_twice() -> None:
    handle, seen = failing(1, timed_out)
    with client(handle) as api:
        api.create({"name": "small"})
        api.create({"name": "small"})
    keys = [request.headers["idempotency-key"] for request in seen]
    assert keys[0] == keys[1] != keys[2]
    assert [json.loads(request.content) for request in seen] == [{"name": "small"}] * 3


@pytest.mark.parametrize(
    ("failure", "exists"),
    [
        (timed_out, True),
        (refused, False),
        (lambda: httpx.Response(502), True),
        (lambda: httpx.Response(429), False),
    ],
)
def test_a_study_that_may_exist_is_named_with_its_key_and_sent_again_under_it(
    failure: Callable[[], httpx.Response], exists: bool
) -> None:
    handle, seen = failing(1, failure)
    with client(handle, patience_s=0.0) as api:
        with pytest.raises(Unavailable) as caught:
            api.create({"name": "small", "seed": 1})
        api.create({"seed": 1, "name": "small"})
        api.create({"name": "small", "seed": 1})
    keys = [request.headers["idempotency-key"] for request in seen]
    assert (keys[0] == keys[1], keys[1] == keys[2]) == (exists, False)
    said = f"the study may exist: submit it again with the key {keys[0]}, which makes no second one"
    assert (said in str(caught.value), caught.value.details.get("key") == keys[0]) == (exists, exists)


def test_trials_are_retried_once_although_it_is_sent_twice() -> None:
    handle, seen = failing(1, timed_out)
    with client(handle) as api:
        api.retry("s1", ["s1.fedavg.s00003"])
        api.retry("s1", key="mine")
    keys = [request.headers["idempotency-key"] for request in seen]
    assert keys[0] == keys[1] != keys[2] == "mine"
    assert [json.loads(request.content)["trials"] for request in seen] == [["s1.fedavg.s00003"]] * 2 + [[]]
    assert {request.url.path for request in seen} == {"/v1/studies/s1:retry"}


def test_a_deletion_whose_answer_is_lost_has_deleted_the_study() -> None:
    gone = httpx.Response(404, json=problem(NotFound("no study 's1'")))
    answers = [httpx.Response(200, json=STUDY), httpx.ReadError("connection reset"), gone]

    def handle(request: httpx.Request) -> httpx.Response:
        answer = answers.pop(0)
        if isinstance(answer, httpx.ReadError):
            raise answer
        return answer

    with client(handle) as api:
        api.delete("s1")
    assert answers == []


def test_it_walks_all_pages() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        token = request.url.params.get("page_token")
        assert request.url.params["label"] == "a"
        number = {None: 0, "t1": 1, "t2": 2}[token]
        trial = trial_record(number).model_dump(mode="json")
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
        event(3)[:-9],  # breaks off within an event
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
    assert positions == ["0", "2", "2", "2", "2", "3"]
    assert len(waits) == 5


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
