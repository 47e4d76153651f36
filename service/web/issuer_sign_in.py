"""Signing in through the configured OpenID Connect issuer.

`/sign-in/issuer` sends the browser there, with a cookie that remembers the attempt; `/sign-in/issuer/done` is where it
comes back. The cookie holds a random `state`, signed; nonce and PKCE verifier are derived from the state with the
service's secret, so they are in no cookie, and any replica can finish the attempt.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from driftline.errors import NotFound, Unauthorized
from service.api.auth.tokens import CodeFlow, Tokens
from service.api.dependencies import admitted, context
from service.web.page_route import PageRoute, page
from service.web.sign_in import begin_session, check_own, encrypted, own_page

ROUTER = APIRouter(route_class=PageRoute, include_in_schema=False)
COOKIE = "driftline-sign-in"
ATTEMPT_S = 600
"""Seconds that a person may take on the issuer's pages."""

_PATH = "/sign-in/issuer"
_SEE_OTHER = 303
_Text = Annotated[str, Query(max_length=4000)]


@ROUTER.get(_PATH)
async def begin(request: Request, wanted: Annotated[str, Query(max_length=200)] = "/") -> Response:
    """Send the browser to the issuer's page.

    Raises:
        Forbidden: Another site's page sent the browser here.
        NotFound: No issuer is configured.
        Unavailable: The issuer does not answer.
    """
    check_own(request)
    request.state.wanted = own_page(wanted)
    flow, tokens = _flow(request), context(request).tokens
    state = secrets.token_urlsafe(24)
    address = await run_in_threadpool(flow.begin, state, _verifier(tokens, state), _nonce(tokens, state))
    response = RedirectResponse(address, _SEE_OTHER)
    text = f"{state}.{int(_now(request)) + ATTEMPT_S}.{quote(own_page(wanted), safe='')}"
    response.set_cookie(
        COOKIE,
        f"{text}.{tokens.signature(COOKIE, text)}",
        max_age=ATTEMPT_S,
        path=_PATH,
        httponly=True,
        samesite="lax",  # the browser comes back from the issuer's page
        secure=encrypted(request),
    )
    return response


@ROUTER.get(f"{_PATH}/done")
async def done(
    request: Request, code: _Text = "", state: _Text = "", error: _Text = "", error_description: _Text = ""
) -> Response:
    """Start a session for the person who comes back, and lead to the page that was asked for.

    The session's cookie is strict: a browser sends it only when one of our pages asks. So the answer is a page.

    Raises:
        Unauthorized: The issuer refused, or this is not the answer to an attempt of this browser.
        Forbidden: The person may not read.
        Unavailable: The issuer does not answer.
    """
    flow, tokens = _flow(request), context(request).tokens
    target = request.state.wanted = _attempt(request, state)
    if error or not code:
        raise Unauthorized(f"{flow.host} did not sign you in: {error_description or error or 'it sent no code'}")
    verifier, nonce, now = _verifier(tokens, state), _nonce(tokens, state), _now(request)
    access = await run_in_threadpool(admitted, request, lambda: flow.finish(code, verifier, nonce, now))
    response = page(request, "signed_in.html", wanted=target)
    begin_session(request, response, access)
    response.delete_cookie(COOKIE, path=_PATH, httponly=True, samesite="lax", secure=encrypted(request))
    return response


def _flow(request: Request) -> CodeFlow:
    flow = context(request).tokens.code_flow
    if flow is None:
        raise NotFound("this service has no issuer to sign in with: use a token")
    return flow


def _attempt(request: Request, state: str) -> str:
    """The page that this browser asked for when it began the attempt with this state.

    Raises:
        Unauthorized: The browser began no such attempt, or too long ago.
    """
    text, _, signature = request.cookies.get(COOKIE, "").rpartition(".")
    signed = hmac.compare_digest(signature.encode(), context(request).tokens.signature(COOKIE, text).encode())
    began, _, rest = text.partition(".")
    until, _, target = rest.partition(".")
    if not signed or not hmac.compare_digest(began.encode(), state.encode()):
        raise Unauthorized("this sign-in was not started in this browser: sign in again")
    if int(until) <= _now(request):
        raise Unauthorized(f"this sign-in took longer than {ATTEMPT_S // 60} minutes: sign in again")
    return own_page(unquote(target))


def _verifier(tokens: Tokens, state: str) -> str:
    return tokens.signature(f"{COOKIE} verifier", state)


def _nonce(tokens: Tokens, state: str) -> str:
    return tokens.signature(f"{COOKIE} nonce", state)


def _now(request: Request) -> float:
    return context(request).store.session.clock()
