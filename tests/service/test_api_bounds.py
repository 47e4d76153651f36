"""The work that a request can cause is bounded, and one project's large studies delay no other project."""

import asyncio
import functools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from driftline.errors import InvalidRequest, RateLimited
from driftline.wire.access import NewToken
from driftline.wire.budgets import StudyEstimate
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from driftline.wire.ids import holder
from service.api import app as app_module
from service.api import dependencies, rate_limits, request_bodies
from service.api.rate_limits import Checking, Limits, Rates
from service.api.study_checks import CheckedStudy
from service.store.store import Store
from tests.waiting import until

from .api_setup import Service, check, running
from .conftest import SPEC, new_trials

LARGE = 5 * 2**20
LOOP = "driftline-api"
"""The thread of a server's event loop."""


class Blocked:
    """A check that waits until it is told to go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.names: list[str] = []
        self.threads: set[str] = set()

    def __call__(self, body: Mapping[str, Any]) -> CheckedStudy:
        self.names.append(str(body["name"]))
        self.threads.add(threading.current_thread().name)
        assert self.go_on.wait(600)
        return check(body)


@pytest.fixture
def blocked() -> Iterator[Blocked]:
    found = Blocked()
    yield found
    found.go_on.set()


@contextmanager
def sending(service: Service) -> Iterator[Callable[[str, str], Future[httpx.Response]]]:
    """Sends studies of a name with a token, each in a thread of its own."""
    with ThreadPoolExecutor(50) as threads:

        def send(token: str, name: str) -> httpx.Response:
            with service.http(token) as http:
                return http.post("/v1/studies", json=SPEC | {"name": name}, timeout=600)

        yield lambda token, name: threads.submit(send, token, name)


# ---- sizes


def test_a_study_has_a_limit_of_its_own(sqlite_store: Store) -> None:
    assert Limits().study_bytes == 2**20
    with running(sqlite_store, limits=Limits(study_bytes=2000)) as service, service.client() as client:
        large = SPEC | {"name": "x" * 2000}
        for send in (client.create, client.validate):
            with pytest.raises(
                InvalidRequest, match=r"at most 2000 bytes \(study_bytes in the service's limits\), got"
            ):
                send(large)
        study = client.create(SPEC).id
        with service.client(service.tokens.driver(study)) as driver:
            driver.acquire(study, holder())
            trials = [trial.id for trial in driver.create_trials(study, 1, new_trials("fedavg", 1))]
            driver.start_pack(study, 1, "p", trials)
            columns = {"round": list(range(2000)), "loss": [0.5] * 2000}
            driver.report(study, Report(attempt=1, pack="p", reports={trials[0]: encode(columns)}, rounds_done=1999))
            assert driver.curves(study)[trials[0]]["round"][-1] == 1999


@pytest.mark.parametrize(
    ("token", "path", "status"),
    [
        ("wrong", "/v1/studies", 401),
        ("reader", "/v1/studies", 403),
        ("writer", "/v1/studies/{study}/reports", 403),
        ("writer", "/v1/studies/{study}/logs", 403),
        ("writer", "/v1/studies/{study}:extend", 413),
        ("all", "/v1/tokens", 413),
    ],
)
def test_a_body_is_read_only_where_it_can_be_of_use(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, token: str, path: str, status: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the body was parsed")

    monkeypatch.setattr(request_bodies, "parse", fail)
    study = sqlite_store.studies.create(SPEC, "f" * 64).id
    with running(sqlite_store) as service, service.http(token) as http:
        answer = http.post(path.format(study=study), json={"note": "x" * (2**20 + 1)})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


# ---- threads


def test_checks_and_what_follows_run_off_the_event_loop(
    sqlite_store: Store, blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store.studies, "create", off_the_loop(sqlite_store.studies.create))
    monkeypatch.setattr(
        app_module.studies, "estimate", off_the_loop(lambda *_: StudyEstimate(trials=1, packs=1, rounds=1))
    )
    blocked.go_on.set()
    with running(sqlite_store, check=blocked) as service, service.client() as client:
        study = client.create(SPEC).id
        client.extend(study, seeds=5)
        client.validate(SPEC)
    assert len(blocked.names) == 3
    assert LOOP not in blocked.threads


def off_the_loop(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same, which fails in the thread of an event loop."""

    @functools.wraps(work)
    def checked(*arguments: Any, **options: Any) -> Any:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return work(*arguments, **options)

    return checked


def test_large_bodies_are_parsed_and_hints_are_found_off_the_event_loop(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_bodies, "parse", off_the_loop(request_bodies.parse))
    monkeypatch.setattr(dependencies, "hint", off_the_loop(dependencies.hint))
    with running(sqlite_store) as service, service.http() as http:
        assert http.post("/v1/studies", json=SPEC | {"note": "x" * request_bodies.PARSED_AT_ONCE}).status_code == 201
        answer = http.get("/v1/studies", params={"pagesize": 3})
    assert "did you mean page_size" in answer.json()["detail"]


def test_a_projects_studies_take_turns_and_another_projects_pass(sqlite_store: Store, blocked: Blocked) -> None:
    with running(sqlite_store, check=blocked) as service, sending(service) as send:
        first = [send("all", "first") for _ in range(6)]
        until(lambda: blocked.names == ["first"])
        other = send("stranger", "other")
        until(lambda: "other" in blocked.names)
        assert blocked.names == ["first", "other"]
        blocked.go_on.set()
        assert {answer.result().status_code for answer in (*first, other)} == {201}


def test_probes_and_ordinary_requests_are_answered_while_all_checks_are_blocked(
    sqlite_store: Store, blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "Checking", functools.partial(Checking, at_once=4, per_project=2))
    with running(sqlite_store, check=blocked) as service, sending(service) as send:
        waiting = [send(token, token) for token in ("all", "stranger") for _ in range(20)]
        until(lambda: len(blocked.names) == 4)  # and 36 requests wait for a turn
        with service.http() as http:
            for path in ("/healthz", "/readyz", "/metrics", "/v1/whoami", "/v1/studies"):
                assert http.get(path, timeout=600).status_code == 200
        assert len(blocked.names) == 4
        blocked.go_on.set()
        assert {answer.result().status_code for answer in waiting} <= {201, 429}


def test_a_request_that_waits_too_long_is_told_when_to_try_again(
    sqlite_store: Store, blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "Checking", functools.partial(Checking, at_once=3, per_project=2, patience_s=0.2))
    with running(sqlite_store, check=blocked) as service, sending(service) as send:
        held = [send("all", "held") for _ in range(2)]
        until(lambda: len(blocked.names) == 2)
        own = send("all", "third of its project").result()
        assert (own.status_code, own.headers["retry-after"]) == (429, "3")
        assert "at most 2 of a project's studies are checked at a time" in own.json()["detail"]
        held.append(send("stranger", "held"))
        until(lambda: len(blocked.names) == 3)
        third = sqlite_store.tokens.create(NewToken(name="third", project="third", scopes=["read", "write"])).token
        full = send(third, "fourth").result()
        assert (full.status_code, full.headers["retry-after"]) == (503, "3")
        assert len(blocked.names) == 3
        blocked.go_on.set()
        assert {answer.result().status_code for answer in held} == {201}
        assert send("all", "later").result().status_code == 201


def test_a_projects_turns_are_forgotten_after_use() -> None:
    checking = Checking()

    async def use() -> None:
        for number in range(100):
            async with checking.turn(f"project-{number}"):
                assert len(checking._turns) == 1

    asyncio.run(use())
    assert len(checking._turns) == 0


def test_probes_have_threads_of_their_own(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the pool that other requests share are held by reading that does not end."""
    held, go_on = threading.Semaphore(0), threading.Event()

    def studies(**_: object) -> tuple[list[Any], bool]:
        held.release()
        assert go_on.wait(600)
        return [], False

    monkeypatch.setattr(sqlite_store.studies, "page", studies)
    with running(sqlite_store) as service, ThreadPoolExecutor(45) as threads:

        def ask() -> int:
            with service.http() as http:
                return http.get("/v1/studies", timeout=600).status_code

        asked = [threads.submit(ask) for _ in range(45)]
        try:
            for _ in range(40):
                assert held.acquire(timeout=600)
            with service.http(None) as http:
                for path in ("/healthz", "/readyz"):
                    assert http.get(path, timeout=600).status_code == 200
        finally:
            go_on.set()
        assert {answer.result() for answer in asked} == {200}


# ---- failed sign-ins


def test_failed_sign_ins_of_an_address_are_slowed_and_valid_tokens_pass(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "Rates", functools.partial(Rates, clock=lambda: 0.0))  # no bucket fills meanwhile
    with running(sqlite_store, loopback=True) as service, service.http(None) as http:

        def ask(token: str) -> httpx.Response:
            # an address that the client names itself is not believed
            return http.get(
                "/v1/whoami", headers={"Authorization": f"Bearer {token}", "X-Forwarded-For": f"1.2.3.{token}"}
            )

        answers = [ask(str(number)) for number in range(50)]
        assert [answer.status_code for answer in answers] == [401] * 20 + [429] * 30
        refused = answers[20:]
        for answer in refused:
            assert answer.headers["retry-after"] == "3"
            assert "the bearer token is unknown" in answer.json()["detail"]
            assert "too many failed sign-ins came from this address: wait" in answer.json()["detail"]
        assert http.get("/v1/whoami").status_code == 429  # without any token
        assert http.get("/v1/whoami", headers={"Authorization": "Bearer reader"}).status_code == 200
        assert "driftline_auth_failures_total 50.0" in http.get("/metrics").text
    noted = sqlite_store.audit.find(action="auth.failed")
    assert [event.details["client"] for event in noted] == ["127.0.0.1"] * 10  # a few a minute


def test_addresses_come_from_proxies_that_are_named(sqlite_store: Store) -> None:
    with running(sqlite_store, loopback=True, trusted_proxies=("127.0.0.1",)) as service, service.http("wrong") as http:
        for number in range(30):
            assert http.get("/v1/whoami", headers={"X-Forwarded-For": f"1.2.3.{number}"}).status_code == 401
    assert sqlite_store.audit.find(action="auth.failed")[-1].details["client"] == "1.2.3.0"


def test_the_table_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "_BUCKETS", 10)
    rates = Rates(1.0, 2, clock=lambda: 0.0)
    for number in range(1000):
        rates.take(f"10.0.{number // 256}.{number % 256}")
    assert len(rates._buckets) == 10
    rates.take("10.0.3.231")  # the last one is remembered
    with pytest.raises(RateLimited):
        rates.take("10.0.3.231")


def test_a_known_token_that_may_do_nothing_is_not_a_failed_sign_in(sqlite_store: Store) -> None:
    with running(sqlite_store) as service, service.http("reader") as http:
        body = json.dumps(SPEC)
        for _ in range(50):
            answer = http.post("/v1/studies", content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code == 403
