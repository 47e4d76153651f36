"""Signing in on the service's pages: what the cookie allows, when it ends, and who may not have one."""

import functools
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from driftline.wire.access import NewToken
from service.api import app
from service.api.auth.oidc import Oidc
from service.api.auth.tokens import Tokens
from service.api.rate_limits import Rates
from service.store.store import Store
from service.web import pages
from service.web.sessions import COOKIE, SESSION_S
from tests.new_stores import empty_database

from .api_setup import TOKENS, Service, running
from .conftest import SPEC, Clock
from .oidc_setup import issuing

pytestmark = pytest.mark.usefixtures("clocked")


def sign_in(http: httpx.Client, token: str, **form: str) -> httpx.Response:
    return http.post("/sign-in", data={"token": token, **form})


@contextmanager
def signed_in(service: Service, token: str) -> Iterator[httpx.Client]:
    """A browser with a session and no bearer token."""
    with service.http(None) as http:
        assert sign_in(http, token).status_code == 303
        yield http


def token_of(service: Service, **fields: object) -> str:
    new = {"name": "ann", "scopes": ["read", "write"], **fields}
    return service.store.tokens.create(NewToken.model_validate(new)).token


@pytest.mark.parametrize("path", ["/", "/studies/{}", "/studies/{}/frontier"])
def test_pages_need_a_session(service: Service, path: str) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with service.http(None) as http, service.http("all") as bearer:
        for client in (http, bearer):  # a page takes no bearer token
            answer = client.get(path.format(study))
            assert answer.status_code == 401
            assert "small" not in answer.text
            assert "set-cookie" not in answer.headers


def test_a_token_gives_a_session_and_leads_to_the_page_asked_for(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    with service.http(None) as http:
        form = http.get(f"/studies/{study}").text
        assert f'name="wanted" value="/studies/{study}"' in form
        answer = sign_in(http, "reader", wanted=f"/studies/{study}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/studies/{study}")
        cookie = answer.headers["set-cookie"]
        assert "reader" not in cookie
        assert set(cookie.split("; ")[1:]) == {"HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={SESSION_S:.0f}"}
        assert http.get(f"/studies/{study}").status_code == 200


@pytest.mark.parametrize(
    "wanted", ["https://example.org/", "//example.org", "/\\example.org", "/v1/studies", "/\n", ""]
)
def test_sign_in_leads_to_own_pages_only(service: Service, wanted: str) -> None:
    with service.http(None) as http:
        assert sign_in(http, "reader", wanted=wanted).headers["location"] == "/"


def test_the_cookie_is_for_https_only_behind_a_proxy_that_speaks_it(service: Service) -> None:
    with service.http(None) as http:
        answer = http.post("/sign-in", data={"token": "reader"}, headers={"X-Forwarded-Proto": "https"})
        assert "Secure" in answer.headers["set-cookie"].split("; ")


def test_a_session_counts_on_no_route_of_the_api(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SIGN_INS_AT_ONCE", 1000)
    study = service.store.studies.create(SPEC, "f" * 64).id
    before = service.store.studies.get(study)
    with running(service.store) as unlimited, signed_in(unlimited, "all") as http:
        paths = http.get("/openapi.json").json()["paths"]
        asked = [(method, path) for path, methods in paths.items() if path.startswith("/v1/") for method in methods]
        assert len(asked) > 20
        for method, path in asked:
            own = path.format(study_id=study, token_id="x", project="default", digest="0" * 64)
            assert http.request(method, own, json={}).status_code == 401, (method, path)
        for path in ("/", f"/studies/{study}", f"/studies/{study}/frontier", "/docs"):
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                assert http.request(method, path).status_code == 405, (method, path)
    assert service.store.studies.get(study) == before


def test_only_signing_in_and_out_takes_a_post() -> None:
    routes = [route for router in pages.ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    assert {route.path for route in routes if route.methods != {"GET"}} == {"/sign-in", "/sign-out"}
    assert {"/", "/docs", "/studies/{study_id}"} <= {route.path for route in routes}
    assert not any(route.include_in_schema for route in routes)


def test_a_session_ends_with_its_token(service: Service, clock: Clock) -> None:
    with signed_in(service, token_of(service)) as http:
        assert http.get("/").status_code == 200
        service.store.tokens.revoke(service.store.tokens.find()[0].id)
        assert http.get("/").status_code == 401
    with signed_in(service, token_of(service, expires_in_days=0.1)) as http:
        (cookie,) = http.cookies.jar
        assert cookie.expires - time.time() <= 0.1 * 24 * 3600
        clock.now += 0.1 * 24 * 3600 - 1
        assert http.get("/").status_code == 200
        clock.now += 1
        assert http.get("/").status_code == 401


def test_a_session_ends_after_half_a_day(service: Service, clock: Clock) -> None:
    with signed_in(service, "reader") as http:
        clock.now += SESSION_S - 1
        assert http.get("/").status_code == 200
        clock.now += 1
        answer = http.get("/")
        assert answer.status_code == 401
        assert "the session has ended: sign in again" in answer.text


def test_a_session_ends_when_its_token_is_no_longer_configured(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with signed_in(service, "reader") as http:
        cookie = {"Cookie": f"{COOKIE}={http.cookies[COOKIE]}"}
    with running(service.store) as replica, replica.http(None) as http:
        assert http.get("/", headers=cookie).status_code == 200  # any replica with the same secret takes the cookie
    monkeypatch.delitem(TOKENS, "reader")
    with running(service.store) as restarted, restarted.http(None) as http:
        assert http.get("/", headers=cookie).status_code == 401


@pytest.mark.parametrize(
    "cookie",
    ["", ".", "x", "x.y", "{text}.{zeros}", "{other}.{signature}", "{text}", "{text}.{signature}0", "driver.{text}"],
)
def test_a_forged_cookie_is_refused(service: Service, cookie: str) -> None:
    with signed_in(service, "reader") as http, signed_in(service, "all") as other:
        text, _, signature = http.cookies[COOKIE].rpartition(".")
        forged = cookie.format(
            text=text, signature=signature, zeros="0" * 64, other=other.cookies[COOKIE].rpartition(".")[0]
        )
    with service.http(None) as http:
        answer = http.get("/", headers={"Cookie": f"{COOKIE}={forged}"})
        assert answer.status_code == 401


def test_a_cookie_of_another_secret_or_made_like_a_drivers_token_is_refused(service: Service) -> None:
    with signed_in(service, "reader") as http:
        text, _, _ = http.cookies[COOKIE].rpartition(".")
    stranger = Tokens(TOKENS, b"another secret").signature("web-session", text)
    driver = service.tokens.driver(text).rpartition(".")[2]
    with service.http(None) as http:
        for signature in (stranger, driver):
            assert http.get("/", headers={"Cookie": f"{COOKIE}={text}.{signature}"}).status_code == 401


def test_the_cookie_is_no_token(service: Service) -> None:
    with signed_in(service, "all") as http:
        cookie = http.cookies[COOKIE]
    with service.http(cookie) as http:
        assert http.get("/v1/studies").status_code == 401
    with service.http(None) as http:
        assert sign_in(http, cookie).status_code == 401


def test_signing_out_deletes_the_cookie(service: Service) -> None:
    with signed_in(service, "reader") as http:
        answer = http.post("/sign-out")
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
        assert COOKIE not in http.cookies
        assert http.get("/").status_code == 401


def test_a_token_without_scope_read_cannot_sign_in(service: Service) -> None:
    study = service.store.studies.create(SPEC, "f" * 64).id
    for token, words in (
        (service.tokens.driver(study), "a driver&#39;s token cannot sign in"),
        (token_of(service, scopes=["write"]), "scope &#39;read&#39;"),
    ):
        with service.http(None) as http:
            answer = sign_in(http, token)
            assert (answer.status_code, words in answer.text) == (403, True), answer.text
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 303), ("none", 303)]
)
def test_no_page_of_another_site_signs_in_or_out(service: Service, site: str, status: int) -> None:
    with service.http(None) as http:
        headers = {"Sec-Fetch-Site": site}
        assert http.post("/sign-in", data={"token": "reader"}, headers=headers).status_code == status
        assert http.post("/sign-out", headers=headers).status_code == status


def test_a_link_on_another_site_is_followed_once_more_from_our_own_page(service: Service) -> None:
    refresh = '<meta http-equiv="refresh" content="0">'
    with service.http(None) as http:
        assert refresh in http.get("/", headers={"Sec-Fetch-Site": "cross-site"}).text
        assert refresh not in http.get("/", headers={"Sec-Fetch-Site": "same-origin"}).text


def test_failed_sign_ins_are_slowed_down_and_noted(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "Rates", functools.partial(Rates, clock=Clock(0.0)))  # buckets do not fill
    with running(service.store) as slowed, slowed.http(None) as http:
        answers = [sign_in(http, f"guess {number}") for number in range(app.SIGN_INS_AT_ONCE)]
        assert {answer.status_code for answer in answers} == {401}
        assert "the bearer token is unknown, expired or revoked</p>" in answers[0].text
        answer = sign_in(http, "guess")
        assert answer.status_code == 429
        assert not any("DRIFTLINE_TOKEN" in one.text for one in (*answers, answer))
        assert int(answer.headers["Retry-After"]) >= 1
        assert http.get("/v1/studies").status_code == 429  # the same limit as for bearer tokens
        assert sign_in(http, "reader").status_code == 303
        assert http.get("/").status_code == 200
    (first, *_) = service.store.audit.find(action="auth.failed")
    assert first.target == "/sign-in"


def test_requests_of_a_session_count_for_its_token(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "Rates", functools.partial(Rates, clock=Clock(0.0)))
    limits = app.Limits(requests_per_second=1, burst=3)
    with running(service.store, limits=limits) as limited, signed_in(limited, "reader") as http:
        assert [http.get("/").status_code for _ in range(3)] == [200, 200, 429]  # signing in was the first of three
        with limited.http("writer") as other:
            assert other.get("/v1/whoami").status_code == 200


def test_a_form_has_bounds(service: Service) -> None:
    with service.http(None) as http:
        assert sign_in(http, "x" * 40_000).status_code == 413
        assert http.post("/sign-in", content="&".join("a=1" for _ in range(1000))).status_code == 401
        assert http.post("/sign-in", content=b"token=\xff\x00").status_code == 401


def test_a_token_of_an_issuer_signs_in_until_it_expires(tmp_path: Path) -> None:
    clock = Clock(time.time())
    store = Store(empty_database(tmp_path / "issuer.db"), clock=clock)
    store.studies.create(SPEC, "f" * 64, project="vision")
    with issuing() as issuer, running(store, issuer=Oidc.from_json(issuer.config())) as service:
        with service.http(None) as http:
            answer = sign_in(http, issuer.token())
            assert answer.status_code == 303
            seconds = re.search(r"Max-Age=(\d+)", answer.headers["set-cookie"])
            assert 0 < int(seconds[1]) <= 300
            page = http.get("/")
            assert page.status_code == 200
            assert "ann@example.org" in page.text
            assert ">small<" in page.text
            cookie = http.cookies[COOKIE]
            clock.now += 301
            assert http.get("/").status_code == 401
            clock.now -= 301
        with running(store) as without, without.http(None) as http:  # the issuer is no longer configured
            assert http.get("/", headers={"Cookie": f"{COOKIE}={cookie}"}).status_code == 401
    store.close()
