"""Tokens, quotas, rates and the audit trail over a real server."""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from driftline.errors import InvalidSpec, NotFound, QuotaExceeded, RateLimited, Unauthorized, Unavailable
from driftline.wire.access import NewToken
from service.api import app
from service.api.rate_limits import Limits, Rates
from service.settings import read_service
from service.store.store import Store

from .api_setup import Service, pages, running
from .conftest import SPEC, Clock
from .store_setup import packed

pytestmark = pytest.mark.usefixtures("clocked")
TRIALS = 2 * (4 + 1 * 2)
"""What SPEC asks for: two labels, four settings, one of them repeated on two seeds."""


@pytest.fixture
def either(store: Store) -> Iterator[Service]:
    """The same over every kind of store."""
    with running(store) as started:
        yield started


def made(service: Service, **fields: Any) -> dict[str, Any]:
    body = {"name": "ann", "project": "team", "scopes": ["read", "write"], **fields}
    with service.http() as http:
        response = http.post("/v1/tokens", json=body)
        assert response.status_code == 201
        return response.json()


def actions(service: Service, **params: Any) -> list[tuple[str, str, str]]:
    with service.http() as http:
        events = http.get("/v1/audit", params=params).json()["events"]
    return [(event["action"], event["actor_name"], event["project"]) for event in events]


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes for rates: no bucket fills while a test asks, however slow the machine."""
    monkeypatch.setattr(app, "Rates", functools.partial(Rates, clock=Clock(0.0)))


# ---- tokens


def test_a_token_is_shown_once_and_stored_as_a_hash(either: Service) -> None:
    service = either
    token = made(service, expires_in_days=1)
    with service.http() as http:
        listed = http.get("/v1/tokens").json()["tokens"]
    assert [one["id"] for one in listed] == [token["id"]]
    assert "token" not in listed[0]
    with service.store.session.read() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM tokens").all()
    assert token["token"] not in str(rows)
    with service.client(token["token"]) as ann:
        assert ann.create(SPEC).project == "team"
        who = ann.whoami()
    assert (who.id, who.name, who.project, who.scopes, who.study) == (
        token["id"], "ann", "team", ["read", "write"], None,
    )  # fmt: skip


def test_a_revoked_token_is_refused_at_once(service: Service) -> None:
    token = made(service)
    with service.client(token["token"]) as ann, service.client() as boss:
        assert ann.studies() == []
        boss.revoke_token(token["id"])
        with pytest.raises(Unauthorized, match="unknown, expired or revoked"):
            ann.studies()
        boss.revoke_token(token["id"])  # the same again
        with pytest.raises(NotFound, match='no token "x"'):
            boss.revoke_token("x")
    assert actions(service) == [
        ("auth.failed", "", ""),
        ("token.revoke", "configured", "team"),
        ("token.create", "configured", "team"),
    ]


def test_a_token_expires(service: Service, clock: Clock) -> None:
    token = made(service, expires_in_days=2)
    with service.client(token["token"]) as ann:
        clock.now += 2 * 24 * 3600 - 1
        assert ann.whoami().expires_at is not None
        clock.now += 1
        with pytest.raises(Unauthorized):
            ann.whoami()


def test_when_a_token_was_used_is_noted_now_and_then(either: Service, clock: Clock) -> None:
    service = either
    token = made(service)
    with service.client(token["token"]) as ann, service.client() as boss:
        assert boss.tokens()[0].last_used_at is None
        ann.whoami()
        first = boss.tokens()[0].last_used_at
        clock.now += 60
        ann.whoami()
        assert boss.tokens()[0].last_used_at == first
        clock.now += 300
        ann.whoami()
        later = boss.tokens()[0].last_used_at
        assert (later - first).total_seconds() == 360


def test_a_token_is_valid_while_nothing_can_be_written(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    token, writes = made(service), []

    def write() -> Any:
        writes.append(1)
        raise Unavailable("the disk is full")

    monkeypatch.setattr(service.store.session, "write", write)
    for _ in range(2):
        assert service.store.tokens.valid(token["token"]) is not None
    assert writes == [1]


@pytest.mark.parametrize("name", ["DRIFTLINE_MLFLOW_URL", "DRIFTLINE_MLFLOW_PUBLIC_URL"])
def test_an_account_in_mlflows_address_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match=rf"^{name}: must hold no account, because it is shown") as caught:
        read_service({name: "https://ann:s3cret@mlflow.example.org"})
    assert "s3cret" not in str(caught.value)
    assert read_service({name: "https://mlflow.example.org/a@b"})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "x\n"},
        {"name": "x", "scopes": ["root"]},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["driver"]},
        {"name": "x", "project": "../etc"},
        {"name": "x", "expires_in_days": 0},
        {"name": "x", "expires_in_days": 1e300},
        {"name": "x", "expires_in_days": True},
        {"name": "x", "admin": True},
    ],
)
def test_tokens_that_cannot_be(service: Service, body: dict[str, Any]) -> None:
    with service.http() as http:
        assert http.post("/v1/tokens", json=body).status_code == 422
        assert http.get("/v1/tokens").json()["tokens"] == []


def test_tokens_studies_and_the_trail_in_pages(service: Service) -> None:
    ids = [service.store.tokens.create(NewToken(name=f"n{number}")).id for number in range(5)]
    ids += [service.store.studies.create(SPEC, "f" * 64).id for _ in range(3)]
    with service.http() as http:
        for name, key, count in (("tokens", "tokens", 5), ("studies", "studies", 3), ("audit", "events", 8)):
            found = [one for page in pages(http, f"/v1/{name}", key, 2) for one in page]
            numbers = [one["id"] for one in found]
            assert len(numbers) == count
            assert numbers == sorted(numbers, reverse=True)
        assert {one["target"] for one in found} == set(ids)


# ---- quotas


def quota(service: Service, **limits: float | None) -> None:
    with service.http() as http:
        assert http.put("/v1/projects/default/quota", json=limits).status_code == 200


def test_a_project_has_no_more_studies_than_its_quota(either: Service) -> None:
    service = either
    quota(service, studies=1)
    with service.client() as client, service.http() as http:
        study = client.create(SPEC, key="k").id
        assert client.create(SPEC, key="k").id == study  # the same request is no second study
        with pytest.raises(
            QuotaExceeded, match="may have 1 studies, and has 1 unfinished studies: cancel one"
        ) as caught:
            client.create(SPEC)
        assert caught.value.details == {"limit": "studies", "allowed": 1, "used": 1}
        assert len(client.studies()) == 1
        client.pause(study)
        with pytest.raises(QuotaExceeded):
            client.create(SPEC)
        client.cancel(study)
        second = client.create(SPEC).id
        found = http.get("/v1/quota").json()
        assert (found["project"], found["limits"]["studies"], found["own"]) == ("default", 1, True)
        assert (found["use"]["studies"], found["use"]["trials"]) == (1, TRIALS)
        service.store.leases.acquire(second, "h/1")
        service.store.leases.release(second, 1, "FAILED", "broken")
        client.create(SPEC)
        with pytest.raises(QuotaExceeded):
            client.resume(second)
        assert client.study(second).state == "FAILED"


def test_a_project_has_no_more_trials_than_its_quota(service: Service) -> None:
    quota(service, trials=2 * TRIALS)
    with service.client() as client:
        first = client.create(SPEC).id
        client.create(SPEC)
        with pytest.raises(QuotaExceeded, match=f"has {2 * TRIALS} trials in unfinished studies, and this asks for"):
            client.create(SPEC)
        with pytest.raises(QuotaExceeded):
            client.extend(first, seeds=3)
        assert client.study(first).spec == SPEC
        client.cancel(first)
        client.create(SPEC)


def test_gpu_hours_are_counted_from_packs_and_limited(either: Service, clock: Clock) -> None:
    service = either
    quota(service, gpu_hours=1.5)
    store = service.store
    with service.client() as client, service.http() as http:
        study, _, trials = packed(store, 3, running=2, gpus=0.5)
        store.trials.start_pack(study, 1, "p2", trials[2:], gpus=2)
        clock.now += 1800
        assert http.get("/v1/quota").json()["use"]["gpu_hours"] == 1.25
        store.leases.settle(study, "PENDING")  # its lease ended after 30 s, which therefore count
        assert http.get("/v1/quota").json()["use"]["gpu_hours"] == 1.25
        client.create(SPEC)
        store.leases.acquire(study, "elsewhere/2")
        store.trials.start_pack(study, 2, "p3", trials, gpus=1)
        clock.now += 900
        with pytest.raises(QuotaExceeded, match=r"may have 1.5 gpu-hours, and has 1.5 GPU-hours used"):
            client.create(SPEC)
        assert client.pause(study).state == "PAUSING"  # what runs may be stopped
        quota(service, gpu_hours=None)
        client.create(SPEC)


def test_a_study_that_gpu_hours_have_paused_is_resumed_when_there_are_more(either: Service, clock: Clock) -> None:
    quota(either, gpu_hours=1, gpu_hours_pause=True)
    store = either.store
    with either.client() as client:
        study, _, _ = packed(store, gpus=2)
        assert client.pause(study).state == "PAUSING"
        assert client.resume(study).state == "RUNNING"
        clock.now += 1800
        assert client.pause(study).state == "PAUSING"
        store.leases.release(study, 1, "PAUSED")
        with pytest.raises(QuotaExceeded, match="has 1 GPU-hours used: leave it paused, or ask an admin"):
            client.resume(study)
        quota(either, gpu_hours=1)  # they pause nothing: what runs runs on
        assert client.resume(study).state == "PENDING"
        quota(either, gpu_hours=2, gpu_hours_pause=True)
        client.pause(study)
        assert client.resume(study).state == "PENDING"


def test_default_quotas_are_the_services(store: Store) -> None:
    with running(store, limits=Limits(studies=0)) as service:
        with service.client() as client, pytest.raises(QuotaExceeded, match="may have 0 studies"):
            client.create(SPEC)
        quota(service, studies=None)
        with service.client() as client:
            client.create(SPEC)


# ---- rates


@pytest.mark.usefixtures("still")
def test_a_token_that_asks_too_often_waits(sqlite_store: Store) -> None:
    limits = Limits(requests_per_second=0.5, burst=3)
    with running(sqlite_store, limits=limits) as service, service.http() as http, service.http("reader") as other:
        for _ in range(3):
            assert http.get("/v1/studies").status_code == 200
        refused = http.get("/v1/studies")
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:driftline:rate-limited")
        assert refused.headers["retry-after"] == "2"
        assert other.get("/v1/studies").status_code == 200
        assert http.get("/healthz").status_code == 200


def test_buckets_fill_at_their_rate() -> None:
    now = Clock(0.0)
    rates = Rates(2.0, 3, now)
    for _ in range(3):
        rates.take("a")
    with pytest.raises(RateLimited, match=r"2 requests a second, and 3 at once: wait 0.5 s"):
        rates.take("a")
    rates.take("b")
    now.now += 0.5
    rates.take("a")
    with pytest.raises(RateLimited):
        rates.take("a")
    now.now += 100
    for _ in range(3):
        rates.take("a")
    with pytest.raises(RateLimited):
        rates.take("a")
    Rates(None, 1).take("a")


# ---- the trail


def test_who_did_what_is_kept(either: Service) -> None:
    service = either
    ann = made(service)["token"]
    with service.client(ann) as client:
        study = client.create(SPEC).id
        client.extend(study, trials_per_method=5)
        client.pause(study)
        client.pause(study)  # changes nothing
        client.resume(study)
        client.cancel(study)
    quota(service, studies=5)
    assert actions(service)[::-1] == [
        ("token.create", "configured", "team"),
        ("study.submit", "ann", "team"),
        ("study.extend", "ann", "team"),
        ("study.pause", "ann", "team"),
        ("study.resume", "ann", "team"),
        ("study.cancel", "ann", "team"),
        ("quota.set", "configured", "default"),
    ]
    assert len(actions(service, project="team")) == 6
    assert actions(service, action="study.pause") == [("study.pause", "ann", "team")]
    with service.http() as http:
        (event,) = http.get("/v1/audit", params={"action": "study.extend"}).json()["events"]
    assert (event["target"], event["details"]) == (study, {"trials_per_method": [4, 5], "seeds": [2, 2]})


def has_ipv6() -> bool:
    """Whether this machine's loopback interface has an address of IPv6."""
    file = Path("/proc/net/if_inet6")
    return file.exists() and " lo" in file.read_text()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_proxy_of_either_family_is_known_by_its_own_address(sqlite_store: Store) -> None:
    sent = {"127.0.0.1": "203.0.113.9", "[::1]": "2001:db8::9"}
    with running(sqlite_store, host="::", trusted_proxies=["127.0.0.0/8", "::1"]) as service:
        port = service.server.url.rpartition(":")[2]
        for address, client in sent.items():
            headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": client}
            assert httpx.get(f"http://{address}:{port}/v1/studies", headers=headers, trust_env=False).status_code == 401
    found = {event.details["client"] for event in sqlite_store.audit.find(action="auth.failed")}
    assert found == set(sent.values())


def noted(store: Store, trusted: Sequence[str], *forwarded: str) -> str:
    """The client's address in the audit trail, after a request from this machine with such headers."""
    with running(store, loopback=True, trusted_proxies=trusted) as service, service.http("wrong") as wrong:
        headers = [("X-Forwarded-For", value) for value in forwarded]
        assert wrong.get("/v1/studies", headers=headers).status_code == 401
    return str(store.audit.find(action="auth.failed")[0].details["client"])


@pytest.mark.parametrize(
    ("trusted", "forwarded", "client"),
    [
        ([], ["203.0.113.9"], "127.0.0.1"),
        (["10.0.0.7"], ["203.0.113.9"], "127.0.0.1"),
        (["127.0.0.0/8"], ["203.0.113.9"], "203.0.113.9"),
        (["127.0.0.0/8"], [], "127.0.0.1"),
        (["127.0.0.1", "10.0.0.0/8"], ["1.2.3.4, 203.0.113.9, 10.1.2.3"], "203.0.113.9"),
        (["127.0.0.1", "10.0.0.0/8"], ["1.2.3.4", "203.0.113.9", "10.1.2.3"], "203.0.113.9"),
    ],
)
def test_who_names_the_client_of_a_failed_authentication(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, trusted: list[str], forwarded: list[str], client: str
) -> None:
    """Only a trusted proxy: a client can write any address into the header before the proxies add theirs."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own setting, which does not count
    assert noted(sqlite_store, trusted, *forwarded) == client


def test_the_setting_for_programs() -> None:
    given = ({"DRIFTLINE_PROGRAMS": text} for text in ("true", "false", ""))
    assert [read_service(settings).programs for settings in given] == [True, False, False]
    with pytest.raises(InvalidSpec, match=r"^DRIFTLINE_PROGRAMS: must be true or false, got 'yes'$"):
        read_service({"DRIFTLINE_PROGRAMS": "yes"})


def test_the_setting_for_trusted_proxies() -> None:
    given = {"DRIFTLINE_TRUSTED_PROXIES": " 10.0.0.7, fd00::/8,,10.244.0.0/16 "}
    assert read_service(given).trusted_proxies == ("10.0.0.7", "fd00::/8", "10.244.0.0/16")
    assert read_service({}).trusted_proxies == ()
    for wrong in ("*", "proxy.example.org", "10.0.0.1/8", "10.0.0.0/33"):
        with pytest.raises(InvalidSpec, match="DRIFTLINE_TRUSTED_PROXIES: must be IP addresses and networks") as caught:
            read_service({"DRIFTLINE_TRUSTED_PROXIES": f"10.0.0.7,{wrong}"})
        assert repr(wrong) in str(caught.value)


def test_failed_authentications_are_forgotten_after_90_days(store: Store, clock: Clock) -> None:
    store.audit.add("auth.failed")
    store.audit.add("study.submit")
    clock.now += 91 * 24 * 3600
    store.audit.add("auth.failed")
    assert [event.action for event in store.audit.find()] == ["auth.failed", "study.submit"]
