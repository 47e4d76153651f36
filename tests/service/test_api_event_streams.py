"""Many event streams at once: how many there may be, what they cost, who ends them, and that none loses an event."""

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from driftline.errors import InvalidSpec, RateLimited, Unavailable
from driftline.wire.access import NewToken
from service.api import event_streams, study_polls
from service.api.auth.tokens import Access, Tokens
from service.api.event_streams import Stream, StreamLimits, StreamPace, Streams
from service.api.rate_limits import Limits
from service.store.schema import TOKENS
from service.store.store import Store
from tests.waiting import until

from .api_setup import Service, problem, running
from .conftest import Clock, new_trials
from .store_setup import make


def opened(service: Service) -> Streams:
    return service.server._app.state.context.streams


@contextmanager
def stream(service: Service, study: str, token: str = "all") -> Iterator[httpx.Response]:
    with service.http(token) as http, http.stream("GET", f"/v1/studies/{study}/events") as response:
        yield response


@contextmanager
def many(service: Service, study: str, count: int) -> Iterator[list[httpx.Response]]:
    """Streams of one token over one client, which takes long to make."""
    with service.http() as http, ExitStack() as stack:
        path = f"/v1/studies/{study}/events"
        yield [stack.enter_context(http.stream("GET", path)) for _ in range(count)]


def upto(text: Iterator[str], part: str) -> None:
    """Reads until a line that holds this."""
    assert any(part in line for line in text)


def status(service: Service, study: str, token: str = "all") -> int:
    with stream(service, study, token) as response:
        return response.status_code


# ---- how many


def test_a_token_may_have_some_streams_open(sqlite_store: Store) -> None:
    study = make(sqlite_store)
    with running(sqlite_store, streams=StreamLimits(per_token=2)) as service, many(service, study, 2):
        with stream(service, study) as refused:
            refused.read()
            told = problem(refused, 429, "rate-limited")["detail"]
            assert told == "this token has 2 open event streams, the most allowed: close one first"
            assert int(refused.headers["retry-after"]) >= 1
        with service.client(patience_s=0.0) as client, pytest.raises(RateLimited, match="2 open event streams"):
            list(client.events(study))
        assert status(service, study, "reader") == 200  # another token


def test_a_process_may_have_some_streams_open(sqlite_store: Store) -> None:
    study = make(sqlite_store)
    with (
        running(sqlite_store, streams=StreamLimits(per_process=2)) as service,
        many(service, study, 2),
        stream(service, study, "reader") as refused,
    ):
        refused.read()
        assert "2 open event streams" in problem(refused, 503, "unavailable")["detail"]
        assert int(refused.headers["retry-after"]) == 5


def end_by_study(service: Service, study: str, _response: httpx.Response) -> None:
    service.store.studies.intend(study, "cancel")


def end_by_reader(_service: Service, _study: str, response: httpx.Response) -> None:
    response.close()


def end_by(error: Exception) -> Callable[..., None]:
    def end(service: Service, _study: str, _response: httpx.Response) -> None:
        def fail(*_: Any, **__: Any) -> None:
            del service.store.events.tail  # type: ignore[method-assign]  # of the instance: the next read is the class's
            raise error

        service.store.events.tail = fail  # type: ignore[method-assign, assignment]
        until(lambda: "tail" not in vars(service.store.events))

    return end


@pytest.mark.parametrize(
    "end",
    [end_by_study, end_by_reader, end_by(Unavailable("the database is away")), end_by(ZeroDivisionError())],
    ids=["study", "reader", "failure", "defect"],
)
def test_a_stream_that_ended_counts_no_more(sqlite_store: Store, end: Callable[..., None]) -> None:
    study = make(sqlite_store)
    with running(sqlite_store, streams=StreamLimits(per_token=1)) as service:
        with stream(service, study) as first:
            text = first.iter_lines()
            assert next(text) == "retry: 1000"
            until(lambda: opened(service)._informers)  # it has read what happened before
            assert status(service, study) == 429
            end(service, study, first)
            until(lambda: status(service, study) == 200)
        until(lambda: not opened(service)._open and not opened(service)._informers)
        assert status(service, "none") == 404
        until(lambda: status(service, study) == 200)


@pytest.mark.parametrize("defect", [Unavailable("away"), ZeroDivisionError()])
def test_a_stream_that_fails_at_its_start_counts_no_more(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, defect: Exception
) -> None:
    study = make(sqlite_store)

    def fail(*_: Any, **__: Any) -> None:
        raise defect

    with running(sqlite_store, streams=StreamLimits(per_token=1)) as service:
        with monkeypatch.context() as patch, stream(service, study) as first:
            patch.setattr(sqlite_store.events, "tail", fail)
            first.close()
        with monkeypatch.context() as patch:
            patch.setattr(sqlite_store.events, "tail", fail)
            until(lambda: not opened(service)._open)
            with service.client(patience_s=0.0) as client, pytest.raises(Unavailable):
                list(client.events(study))
        until(lambda: status(service, study) == 200)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"per_token": 0}, "streams.per_token: must be at least 1, got per_token=0"),
        ({"per_tokens": 5}, "streams.per_tokens: unknown key"),
        (7, "streams: must be a mapping of keys to values, got 7"),
    ],
)
def test_invalid_limits(given: object, words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        StreamLimits.taken({"streams": given})
    assert str(caught.value).startswith(words)
    with pytest.raises(InvalidSpec, match=r"^streams\.per_token: .*\nstreams\.per_process: "):
        StreamLimits.taken({"streams": {"per_token": 0, "per_process": 0}})


def test_limits_of_streams_stand_among_the_others() -> None:
    document = {"burst": 7, "streams": {"per_token": 3}}
    assert StreamLimits.taken(document) == StreamLimits(per_token=3, per_process=500)
    assert Limits.from_json(document).burst == 7
    assert StreamLimits.taken({}) == StreamLimits()


# ---- what they cost


class Reads:
    """How often a store's database is read from now on."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = store.session.database.read

        def counted() -> Any:
            self.count += 1
            return read()

        monkeypatch.setattr(store.session.database, "read", counted)


def test_fifty_streams_share_one_poll(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make(sqlite_store)
    poll_s = 0.05
    limits = StreamLimits(per_token=None, per_process=None)
    with running(sqlite_store, streams=limits, pace=StreamPace(poll_s=poll_s, check_s=3600.0)) as service:
        with many(service, study, 50) as responses:
            texts = [response.iter_lines() for response in responses]
            for text in texts:
                upto(text, "data:")
            (shared,) = opened(service)._informers.values()
            until(lambda: len(shared.followers) == 50)
            reads, began = Reads(sqlite_store, monkeypatch), time.monotonic()
            until(lambda: reads.count >= 20)
            assert reads.count <= (time.monotonic() - began) / poll_s + 2  # it would be 100 times as many
            sqlite_store.events.log(study, "info", "for all")
            for text in texts:
                upto(text, '"for all"')
        until(lambda: not opened(service)._informers)
        assert shared._task.done()


# ---- who ends them


def revoke(store: Store, _clock: Clock, token_id: str) -> None:
    store.tokens.revoke(token_id)


def expire(_store: Store, clock: Clock, _token_id: str) -> None:
    clock.now += 25 * 3600


def change(column: str, value: object) -> Callable[[Store, Clock, str], None]:
    def act(store: Store, _clock: Clock, token_id: str) -> None:
        with store.session.write() as connection:
            connection.execute(sa.update(TOKENS).where(TOKENS.c.id == token_id).values({column: value}))

    return act


@pytest.mark.parametrize(
    ("act", "answer"),
    [(revoke, 401), (expire, 401), (change("scopes", ["write"]), 403), (change("project", "other"), 404)],
)
def test_a_stream_ends_with_its_token(
    store: Store, clock: Clock, act: Callable[[Store, Clock, str], None], answer: int
) -> None:
    study = make(store)
    made = store.tokens.create(NewToken(name="dashboard", scopes=["read"], expires_in_days=1))
    with running(store, pace=StreamPace(poll_s=0.02, check_s=0.05)) as service, stream(service, study) as other:
        with stream(service, study, made.token) as response:
            text = response.iter_lines()
            upto(text, "data:")
            act(store, clock, made.id)
            assert "event: end" not in list(text)  # it ends, but the study has not
        store.events.log(study, "info", "not for everybody")
        assert status(service, study, made.token) == answer
        until(lambda: len(opened(service)._open) == 1)
        upto(other.iter_lines(), "not for everybody")  # nobody else's stream ends


def test_a_stream_that_opens_as_the_last_one_closes_is_checked(sqlite_store: Store) -> None:
    study, made = make(sqlite_store), sqlite_store.tokens.create(NewToken(name="ann", project="default"))
    tokens = Tokens(secret=b"x", store=sqlite_store)

    async def read() -> None:
        streams = Streams(
            sqlite_store, tokens, threading.Event(), StreamLimits(), StreamPace(poll_s=0.02, check_s=0.05)
        )
        access = tokens.access(made.token)
        with streams.opened(study, access, made.token, 0):
            await asyncio.sleep(0.01)
        with streams.opened(study, access, made.token, 0) as text:
            sqlite_store.tokens.revoke(made.id)
            async with asyncio.timeout(60):
                async for _ in text:
                    pass

    asyncio.run(read())


def test_a_token_that_cannot_be_checked_ends_its_stream(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_token: str) -> Access:
        raise ZeroDivisionError

    study = make(sqlite_store)
    with running(sqlite_store, pace=StreamPace(poll_s=0.02, check_s=0.05)) as service:
        with stream(service, study) as response, monkeypatch.context() as patch:
            patch.setattr(service.tokens, "access", fail)
            list(response.iter_lines())
        made = sqlite_store.tokens.create(NewToken(name="dashboard", scopes=["read"]))
        with stream(service, study, made.token) as response:  # and the next ones are checked again
            sqlite_store.tokens.revoke(made.id)
            list(response.iter_lines())


def test_a_driver_may_follow_its_own_study_alone() -> None:
    driver = Access("vision", frozenset({"driver"}), "s1")
    for study, access, over in [
        ("s1", driver, False),
        ("s2", driver, True),
        ("s1", Access("vision", frozenset({"read"})), False),
        ("s1", Access("other", frozenset({"read"})), True),
        ("s1", Access("vision", frozenset({"admin"})), True),
        ("s1", None, True),
    ]:
        one = Stream(study, driver, "token", 0)
        one.check(access)
        assert one.ended is over


# ---- nothing is lost, nothing comes twice


def followed(service: Service, study: str, seed: int) -> tuple[list[int], int]:
    """Ids of a study's events up to its end, and over how many connections, each broken off after some events."""
    draw, ids, connections = random.Random(seed), [0], 0
    with service.client() as client:
        while True:
            connections += 1
            most = draw.choice([1, 2, 5, 30, 10_000])
            some = [event.id for event in islice(client.events(study, after=ids[-1]), most)]
            ids += some
            if len(some) < most:
                return ids[1:], connections


@pytest.mark.parametrize("seed", [1, 2])
def test_readers_that_come_and_go_miss_and_repeat_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Bursts are larger than what is kept and read at once, and events of another study lie between."""
    monkeypatch.setattr(study_polls, "KEPT", 6)
    for module in (study_polls, event_streams):
        monkeypatch.setattr(module, "AT_ONCE", 4)
    draw = random.Random(seed)
    study, other = make(store), make(store)
    unlimited = Limits(requests_per_second=None)
    with (
        running(store, pace=StreamPace(poll_s=0.01), streams=StreamLimits(per_token=None), limits=unlimited) as service,
        ThreadPoolExecutor(6) as threads,
    ):
        readers = []
        for number in range(6):
            for burst in range(6):
                for _ in range(draw.choice([1, 3, 9])):
                    store.events.log(draw.choice([study, study, other]), "info", f"{number}.{burst}")
                time.sleep(draw.choice([0.0, 0.02]))
            readers.append(threads.submit(followed, service, study, 10 * seed + number))
        store.studies.intend(study, "cancel")
        found = [reader.result(120) for reader in readers]
    expected = [event.id for event in store.events.read(study)]
    assert len(expected) > 60
    assert [ids for ids, _ in found] == [expected] * 6
    assert max(connections for _, connections in found) > 1


# ---- slow readers

LARGE = "x" * 20_000


def test_a_slow_reader_gets_everything_and_nothing_is_queued_for_it(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_polls, "KEPT", 10)
    study = make(sqlite_store)
    with running(sqlite_store) as service, stream(service, study) as response:
        text = response.iter_lines()
        upto(text, "data:")
        until(lambda: opened(service)._informers)
        (one,) = opened(service)._open
        (shared,) = opened(service)._informers.values()
        for number in range(150):
            sqlite_store.events.log(study, "info", f"{number} {5 * LARGE}")
        newest = sqlite_store.events.read(study)[-1].id
        until(lambda: shared.head >= newest)
        assert one.position < shared.floor  # far behind: 15 MB lie between, and a connection buffers about 4
        assert len(shared._lines) == 10
        sqlite_store.studies.intend(study, "cancel")
        rest = [json.loads(line.removeprefix("data:")) for line in text if line.startswith("data:")]
    assert [event["id"] for event in rest[:-1]] == [event.id for event in sqlite_store.events.read(study)][1:]
    assert rest[-1] == {}


def test_a_reader_that_reads_no_more_delays_nobody(sqlite_store: Store) -> None:
    """Its stream is open until its connection ends; a proxy limits how long that takes."""
    study = make(sqlite_store)
    with running(sqlite_store) as service, stream(service, study) as response:
        text = response.iter_lines()  # closing this would close the connection
        upto(text, "data:")
        (stalled,) = opened(service)._open
        for number in range(40):
            sqlite_store.events.log(study, "info", f"{number} {LARGE}")
        with stream(service, study) as other:
            upto(other.iter_lines(), "39 x")
        assert stalled in opened(service)._open


def test_newer_progress_replaces_what_a_slow_reader_has_not_read(sqlite_store: Store) -> None:
    """What is kept for slow readers holds the newest progress alone, as the store does."""
    study = make(sqlite_store)
    with running(sqlite_store) as service, stream(service, study) as response:
        text = response.iter_lines()
        upto(text, "data:")
        until(lambda: opened(service)._informers)
        (shared,) = opened(service)._informers.values()
        sqlite_store.leases.acquire(study, "h/1")
        for number in range(3):
            sqlite_store.trials.create(study, 1, new_trials("fedavg", 1, number))
            newest = sqlite_store.events.read(study)[-1].id
            until(lambda newest=newest: shared.head >= newest)  # type: ignore[misc]
        assert [line.kind for line in shared.after(shared.floor)] == ["state", "progress"]
