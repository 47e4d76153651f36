"""Tokens of an OpenID Connect issuer, through the API over HTTP."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from service.api.auth import issuer_answers, oidc_keys
from service.api.auth.oidc import Oidc
from service.api.auth.oidc_keys import FRESH_S, PAUSE_S, TRUSTED_S, UNKNOWN_S, WAITING
from service.api.rate_limits import Limits
from service.store.store import Store
from tests.waiting import until

from .api_setup import Service, running
from .conftest import SPEC, Clock
from .oidc_setup import Issuer, Key


@pytest.fixture
def ages(request: pytest.FixtureRequest) -> Clock:
    """The clock that keys grow old by."""
    return Clock(1000.0)


@pytest.fixture
def service(sqlite_store: Store, issuer: Issuer, ages: Clock) -> Iterator[Service]:
    with running(sqlite_store, issuer=Oidc.from_json(issuer.config(), clock=ages)) as started:
        yield started


def asked(service: Service, token: str, path: str = "/v1/whoami") -> httpx.Response:
    place = service.server.socket
    transport = httpx.HTTPTransport(uds=str(place) if place else None, verify=False)  # reads no certificates
    with httpx.Client(base_url=service.server.url, transport=transport, timeout=60) as http:
        return http.get(path, headers={"Authorization": f"Bearer {token}"})


def refused(response: httpx.Response, status: int, *words: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    for word in words:
        assert word in response.json()["detail"]


def segment(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def test_a_good_token_is_its_subject_with_what_its_groups_are_granted(service: Service, issuer: Issuer) -> None:
    found = asked(service, issuer.token()).json()
    assert (found["id"], found["name"], found["project"]) == ("oidc:4711", "ann@example.org", "vision")
    assert found["scopes"] == ["read", "write"]
    assert found["expires_at"] is not None
    with service.client(issuer.token(email=None)) as client:
        assert client.whoami().name == "4711"
        study = client.create(SPEC)
        assert study.project == "vision"
    event = service.store.audit.find(action="study.submit")[0]
    assert (event.actor, event.actor_name, event.project) == ("oidc:4711", "4711", "vision")
    assert issuer.fetches == 1


@pytest.mark.parametrize(
    ("groups", "project", "scopes"),
    [
        (["vision-viewers"], "vision", ["read"]),
        (["vision-viewers", "vision-leads"], "vision", ["read", "write"]),
        (["vision-viewers", "everybody"], "shared", ["read"]),  # the first entry that matches decides
        (["everybody", "vision-viewers", "vision-leads"], "vision", ["read", "write"]),
        ("everybody", "shared", ["read"]),
        (["operators", 7, None], "default", ["admin"]),
    ],
)
def test_groups(service: Service, issuer: Issuer, groups: Any, project: str, scopes: list[str]) -> None:
    found = asked(service, issuer.token(groups=groups)).json()
    assert (found["project"], found["scopes"]) == (project, scopes)


def test_other_projects_studies_and_more_than_is_granted(service: Service, issuer: Issuer) -> None:
    own = service.store.studies.create(SPEC, "f" * 64, project="vision").id
    foreign = service.store.studies.create(SPEC, "f" * 64, project="other").id
    reader, writer = issuer.token(groups=["vision-viewers"]), issuer.token()
    assert asked(service, reader, f"/v1/studies/{own}").status_code == 200
    refused(asked(service, writer, f"/v1/studies/{foreign}"), 404, foreign)
    refused(asked(service, reader, "/v1/tokens"), 403, "scope 'admin'")
    with service.http(reader) as http:
        refused(http.post(f"/v1/studies/{own}:cancel"), 403, "scope 'write'")
    for groups in (["strangers"], [], None, {"vision-leads": True}):
        refused(asked(service, issuer.token(groups=groups)), 403, "'groups'", "grant")


def test_tokens_that_are_not_good(service: Service, issuer: Issuer) -> None:
    now = int(time.time())
    for changes, word in (
        ({"exp": now - 60, "iat": now - 400}, "expired"),
        ({"exp": None}, '"exp"'),
        ({"exp": 1e20}, "exp"),
        ({"aud": "another"}, "Audience"),
        ({"aud": None}, '"aud"'),
        ({"iss": "https://elsewhere.example"}, issuer.url),
        ({"iss": None}, issuer.url),
        ({"nbf": now + 120}, "not yet valid"),
        ({"iat": now + 120}, "not yet valid"),
        ({"iat": None}, '"iat"'),
        ({"sub": None}, '"sub"'),
        ({"sub": ""}, "sub"),
    ):
        refused(asked(service, issuer.token(**changes)), 401, word)
    now = int(time.time())  # the leeway is half a minute, and what came before took its time
    for changes in ({"exp": now - 10}, {"nbf": now + 10}, {"iat": now + 10}, {"aud": ["another", "driftline"]}):
        assert asked(service, issuer.token(**changes)).status_code == 200
    impostor = Key("first")  # the id of a good key, and another key
    refused(asked(service, issuer.token(impostor)), 401, "Signature verification failed")
    head, _body, signature = issuer.token().split(".")
    richer = segment({**jwt.decode(issuer.token(), options={"verify_signature": False}), "groups": ["operators"]})
    refused(asked(service, f"{head}.{richer}.{signature}"), 401)
    assert service.store.audit.find(action="auth.failed")


def test_signatures_that_are_none(service: Service, issuer: Issuer) -> None:
    claims = jwt.decode(issuer.token(), options={"verify_signature": False})
    for algorithm in ("none", "None", "NONE"):
        bare = f"{segment({'alg': algorithm, 'kid': 'first'})}.{segment(claims)}."
        refused(asked(service, bare), 401, "must be signed with one of")
    pem = (
        issuer.keys[0]
        .private.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    for secret in (pem, pem.strip(), json.dumps(issuer.keys[0].listed()).encode()):
        signed = f"{segment({'alg': 'HS256', 'kid': 'first'})}.{segment(claims)}"
        mac = base64.urlsafe_b64encode(hmac.new(secret, signed.encode(), hashlib.sha256).digest()).rstrip(b"=")
        refused(asked(service, f"{signed}.{mac.decode()}"), 401, "HS256")
    assert issuer.fetches == 0  # refused before anybody is asked


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_kinds_of_keys(service: Service, issuer: Issuer, algorithm: str) -> None:
    issuer.keys = [Key("other"), Key("mine", algorithm)]
    assert asked(service, issuer.token(issuer.keys[1])).status_code == 200
    issuer.keys[1].kid = "first"
    refused(asked(service, issuer.token(issuer.keys[1])), 401, "lists, got key 'first'")


def test_a_token_without_a_kid(service: Service, issuer: Issuer, ages: Clock) -> None:
    claims = jwt.decode(issuer.token(), options={"verify_signature": False})
    bare = jwt.encode(claims, issuer.keys[0].private, "ES256")
    assert asked(service, bare).status_code == 200
    issuer.keys.append(Key("second"))  # now it could be either
    ages.now += UNKNOWN_S + 1
    asked(service, issuer.token(issuer.keys[1]))
    refused(asked(service, bare), 401, "got key None")


def test_a_flood_of_unknown_keys_makes_few_fetches(service: Service, issuer: Issuer, ages: Clock) -> None:
    with service.http(None) as http:
        for number in range(18):
            token = issuer.token(Key(f"unknown-{number}"))
            refused(http.get("/v1/whoami", headers={"Authorization": f"Bearer {token}"}), 401, "lists, got key")
            ages.now += 3.3
    assert issuer.fetches == 2  # in a minute


def test_keys_are_kept_and_rotated(service: Service, issuer: Issuer, ages: Clock) -> None:
    old, new = issuer.token(), Key("second")
    for _ in range(5):
        assert asked(service, old).status_code == 200
    assert issuer.fetches == 1
    issuer.keys = [new]
    refused(asked(service, issuer.token(new)), 401)  # fetched a moment ago
    ages.now += UNKNOWN_S + 1
    assert asked(service, issuer.token(new)).status_code == 200
    refused(asked(service, old), 401, "got key 'first'")
    assert issuer.fetches == 2


def test_a_withdrawn_key_is_trusted_no_longer_than_keys_are_fresh(
    service: Service, issuer: Issuer, ages: Clock
) -> None:
    token = issuer.token()
    assert asked(service, token).status_code == 200
    issuer.keys = [Key("second")]
    ages.now += FRESH_S + 1
    until(lambda: asked(service, token).status_code == 401)  # the old keys serve until the new ones are there
    assert issuer.fetches == 2


def test_an_issuer_that_is_away(service: Service, issuer: Issuer, ages: Clock) -> None:
    issuer.status = 500
    response = asked(service, issuer.token())
    refused(response, 503, issuer.url, "status 500")
    assert 1 <= int(response.headers["retry-after"]) <= PAUSE_S
    assert asked(service, "all").status_code == 200
    refused(asked(service, "unknown"), 401)
    issuer.status = 200
    refused(asked(service, issuer.token()), 503)  # it is left alone for a while
    ages.now += PAUSE_S + 1
    assert asked(service, issuer.token()).status_code == 200
    issuer.status = 500
    ages.now += FRESH_S + 1
    for _ in range(3):
        assert asked(service, issuer.token()).status_code == 200  # with the keys that it has
    ages.now += TRUSTED_S
    refused(asked(service, issuer.token()), 503)


def test_an_issuer_that_hangs_holds_up_nobody_else(
    service: Service, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc_keys, "WAIT_S", 60.0)
    monkeypatch.setattr(issuer_answers, "FETCH_S", 60.0)
    issuer.let.clear()
    answers: list[int] = []
    token = issuer.token()
    threads = [threading.Thread(target=lambda: answers.append(asked(service, token).status_code)) for _ in range(30)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(answers) == 30 - WAITING)
        assert asked(service, "all").status_code == 200
        assert answers == [503] * (30 - WAITING)  # as many wait as may
    finally:
        issuer.let.set()
        for thread in threads:
            thread.join()
    assert answers == [503] * (30 - WAITING) + [200] * WAITING
    assert issuer.fetches == 1


def test_a_configuration_of_another_issuer_is_not_believed(service: Service, issuer: Issuer) -> None:
    issuer.claimed = "https://elsewhere.example"
    refused(asked(service, issuer.token()), 503, "must be of issuer")


def test_rates_are_per_subject(sqlite_store: Store, issuer: Issuer) -> None:
    limits = Limits(requests_per_second=0.01, burst=3)
    with running(sqlite_store, issuer=Oidc.from_json(issuer.config()), limits=limits) as service:
        tokens = [issuer.token(jti=str(number)) for number in range(4)]
        assert [asked(service, token).status_code for token in tokens] == [200, 200, 200, 429]
        assert asked(service, issuer.token(sub="4712")).status_code == 200


def test_names_are_fit_for_logs(service: Service, issuer: Issuer) -> None:
    found = asked(service, issuer.token(email="ann\n\x1b[31m" + "x" * 500, sub="s" * 900)).json()
    assert found["name"].startswith("ann??[31mxxx")
    assert len(found["name"]) == 100
    assert len(found["id"]) <= 255
