"""Signing in on the pages through an OpenID Connect issuer, with the authorization code flow."""

import base64
import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from driftline.errors import InvalidSpec
from service.api import app
from service.api.auth import code_flow
from service.api.auth.oidc import Oidc
from service.api.rate_limits import Rates
from service.store.store import Store
from service.web.issuer_sign_in import ATTEMPT_S, COOKIE
from tests.new_stores import empty_database

from .api_setup import Service, running
from .conftest import SPEC, Clock
from .oidc_setup import Issuer, Key

REDIRECT = "http://127.0.0.1/sign-in/issuer/done"
START = "/sign-in/issuer"


@pytest.fixture
def clock() -> Clock:
    return Clock(float(int(time.time())))


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    opened = Store(empty_database(tmp_path / "issuer.db"), clock=clock)
    opened.studies.create(SPEC, "f" * 64, project="vision")
    yield opened
    opened.close()


def oidc(issuer: Issuer, **more: Any) -> Oidc:
    sign_in = {"client_id": "tuner", "redirect_url": REDIRECT, **more}
    return Oidc.from_json(issuer.config(sign_in=sign_in))


@pytest.fixture
def service(store: Store, issuer: Issuer) -> Iterator[Service]:
    with running(store, issuer=oidc(issuer)) as started:
        yield started


@contextmanager
def begun(service: Service, **query: str) -> Iterator[tuple[httpx.Client, str]]:
    """A browser that was sent to the issuer, and the issuer's address."""
    with service.http(None) as http:
        answer = http.get(START, params=query)
        assert answer.status_code == 303, answer.text
        yield http, answer.headers["location"]


def came_back(http: httpx.Client, address: str) -> httpx.Response:
    """The browser follows the issuer's redirect."""
    parts = urlsplit(address)
    return http.get(parts.path, params=dict(parse_qsl(parts.query)), headers={"Sec-Fetch-Site": "cross-site"})


def test_a_person_signs_in_and_sees_the_page_that_was_asked_for(service: Service, issuer: Issuer) -> None:
    study = service.store.studies.find()[0].id
    with service.http(None) as http:
        form = http.get(f"/studies/{study}").text
        assert f'href="/sign-in/issuer?wanted=/studies/{study}"' in form
        assert f"Sign in with {urlsplit(issuer.url).netloc}" in form
    with begun(service, wanted=f"/studies/{study}") as (http, address):
        asked = dict(parse_qsl(urlsplit(address).query))
        assert address.startswith(f"{issuer.url}/authorize?")
        assert (asked["client_id"], asked["redirect_uri"]) == ("tuner", REDIRECT)
        assert asked["scope"] == "openid email profile"
        answer = came_back(http, issuer.signed_in(address))
        assert answer.status_code == 200, answer.text
        assert f'content="0; url=/studies/{study}"' in answer.text
        cookies = answer.headers.get_list("set-cookie")
        assert [cookie.partition("=")[0] for cookie in cookies] == ["driftline-session", COOKIE]
        assert "SameSite=strict" in cookies[0]
        page = http.get(f"/studies/{study}")
        assert page.status_code == 200
        assert "ann@example.org" in page.text
    ((form_sent, authorization),) = issuer.exchanges
    assert authorization is None  # a public client proves itself by the verifier alone
    assert (form_sent["client_id"], form_sent["grant_type"]) == ("tuner", "authorization_code")


def test_nothing_secret_is_in_the_cookie_of_an_attempt(service: Service, issuer: Issuer) -> None:
    with begun(service) as (http, address):
        cookie = http.cookies[COOKIE]
        came_back(http, issuer.signed_in(address))
    ((form, _),) = issuer.exchanges
    query = dict(parse_qsl(urlsplit(address).query))
    assert len(form["code_verifier"]) >= 43
    assert form["code_verifier"] not in cookie
    assert query["nonce"] not in cookie
    assert query["state"] in cookie


def test_a_client_with_a_secret_proves_itself(store: Store, issuer: Issuer, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret&more\n")
    with (
        running(store, issuer=oidc(issuer, client_secret_file=str(secret))) as service,
        begun(service) as (http, address),
    ):
        assert came_back(http, issuer.signed_in(address)).status_code == 200
    ((form, authorization),) = issuer.exchanges
    assert authorization == f"Basic {base64.b64encode(b'tuner:s3cret%26more').decode()}"
    assert "client_secret" not in form


def test_a_session_lasts_as_configured_not_as_the_id_token(store: Store, issuer: Issuer, clock: Clock) -> None:
    with running(store, issuer=oidc(issuer, hours=2)) as service, begun(service) as (http, address):
        came_back(http, issuer.signed_in(address))  # its ID token expires after 5 minutes
        clock.now += 2 * 3600 - 1
        assert http.get("/").status_code == 200
        clock.now += 1
        assert http.get("/").status_code == 401


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"nonce": "another"}, 401, "another sign-in"),
        ({"nonce": None}, 401, "another sign-in"),
        ({"azp": "another-client"}, 401, "another sign-in"),
        ({"aud": "another-client"}, 401, "not valid"),
        ({"aud": "driftline"}, 401, "not valid"),  # what bearer tokens must have
        ({"iss": "https://elsewhere.example"}, 401, "must come from"),
        ({"exp": 1000}, 401, "expired"),
        ({"groups": ["strangers"]}, 403, "no grant matches"),
        ({"groups": ["operators"]}, 403, "scope"),  # admin alone cannot read
    ],
    ids=str,
)
def test_an_id_token_that_is_not_for_this_sign_in_is_refused(
    service: Service, issuer: Issuer, changes: dict[str, Any], status: int, words: str
) -> None:
    with begun(service) as (http, address):
        answer = came_back(http, issuer.signed_in(address, **changes))
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
        assert "driftline-session" not in http.cookies


def test_an_id_token_with_another_signature_is_refused(service: Service, issuer: Issuer) -> None:
    with begun(service) as (http, address):
        back = issuer.signed_in(address)
        issuer.token = functools.partial(issuer.token, Key("first"))  # type: ignore[method-assign]
        assert came_back(http, back).status_code == 401


def test_an_answer_belongs_to_the_browser_that_asked(service: Service, issuer: Issuer, clock: Clock) -> None:
    with begun(service) as (http, address), begun(service) as (other, _), service.http(None) as new:
        back = issuer.signed_in(address)
        for browser in (other, new):  # of another attempt, and of none
            answer = came_back(browser, back)
            assert (answer.status_code, "not started in this browser" in answer.text) == (401, True)
        assert issuer.exchanges == []  # the issuer was not even asked
        forged = {"Cookie": f"{COOKIE}={http.cookies[COOKIE][:-1]}x"}
        with service.http(None) as forger:
            query = dict(parse_qsl(urlsplit(back).query))
            assert forger.get(f"{START}/done", params=query, headers=forged).status_code == 401
        clock.now += ATTEMPT_S
        assert "longer than 10 minutes" in came_back(http, back).text
        clock.now -= 1
        assert came_back(http, back).status_code == 200
        assert came_back(http, back).status_code == 401  # a code and its cookie are for once


def test_a_code_that_the_issuer_does_not_take(service: Service, issuer: Issuer) -> None:
    with begun(service) as (http, address):
        back = issuer.signed_in(address)
        issuer.codes.clear()
        answer = came_back(http, back)
        assert (answer.status_code, "did not accept this sign-in" in answer.text) == (401, True)


def test_what_the_issuer_says_is_shown_and_escaped(service: Service) -> None:
    with begun(service) as (http, address):
        state = dict(parse_qsl(urlsplit(address).query))["state"]
        query = {"state": state, "error": "access_denied", "error_description": "<script>no</script>"}
        answer = http.get(f"{START}/done", params=query)
        assert answer.status_code == 401
        assert "&lt;script&gt;no" in answer.text
        assert "<script>no" not in answer.text


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil.example", "/v1/studies", "/\\evil.example"])
def test_it_leads_to_own_pages_only(service: Service, issuer: Issuer, wanted: str) -> None:
    with begun(service, wanted=wanted) as (http, address):
        assert 'content="0; url=/"' in came_back(http, issuer.signed_in(address)).text


def test_another_sites_page_cannot_start_it(service: Service) -> None:
    with service.http(None) as http:
        assert http.get(START, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        assert list(http.cookies.jar) == []


def test_without_configuration_there_is_no_such_page(store: Store, issuer: Issuer) -> None:
    for configured in (None, Oidc.from_json(issuer.config())):
        with running(store, issuer=configured) as service, service.http(None) as http:
            assert http.get(START).status_code == 404
            assert http.get(f"{START}/done").status_code == 404
            assert "Sign in with" not in http.get("/sign-in").text


def test_an_issuer_that_is_away_costs_nobody_their_token(service: Service, issuer: Issuer) -> None:
    issuer.status = 500
    with service.http(None) as http:
        answer = http.get(START)
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert issuer.url in answer.text
        assert http.post("/sign-in", data={"token": "reader"}).status_code == 303


def test_few_wait_for_the_issuer_at_a_time(service: Service) -> None:
    flow = service.tokens.code_flow
    for _ in range(code_flow.AT_ONCE):
        assert flow._places.acquire(blocking=False)
    with service.http(None) as http:
        answer = http.get(START)
        assert (answer.status_code, "too many people" in answer.text) == (503, True)
    for _ in range(code_flow.AT_ONCE):
        flow._places.release()
    with begun(service):
        pass


def test_failed_attempts_are_slowed_down_and_noted(
    store: Store, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "Rates", functools.partial(Rates, clock=Clock(0.0)))  # buckets do not fill
    with running(store, issuer=oidc(issuer)) as service, begun(service) as (http, address):
        state = dict(parse_qsl(urlsplit(address).query))["state"]
        statuses = [
            http.get(f"{START}/done", params={"state": state, "code": "guess"}).status_code
            for _ in range(app.SIGN_INS_AT_ONCE + 1)
        ]
        assert statuses == [401] * app.SIGN_INS_AT_ONCE + [429]
    assert store.audit.find(action="auth.failed")[0].target == f"{START}/done"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"client_id": ""}, "sign_in.client_id"),
        ({"redirect_url": "http://tuner.example/sign-in/issuer/done"}, "sign_in.redirect_url: must start with https"),
        ({"redirect_url": "https://tuner.example/"}, "sign_in.redirect_url: must end with /sign-in/issuer/done"),
        ({"scopes": ["email"]}, "sign_in.scopes: must have openid, got email"),
        ({"hours": 13}, "sign_in.hours"),
        ({"hours": 0}, "sign_in.hours"),
        ({"client_secret_file": "/nowhere"}, "sign_in.client_secret_file: must be a file with a secret"),
        ({"secret": "x"}, "sign_in.secret"),
    ],
    ids=str,
)
def test_what_is_invalid_is_said(issuer: Issuer, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^DRIFTLINE_OIDC: {words}"):
        oidc(issuer, **changes)
