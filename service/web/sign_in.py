"""Signing in with a token, and signing out. Failed sign-ins are slowed down like requests with an unknown token."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from driftline.errors import Forbidden
from service.api.auth.tokens import Access
from service.api.dependencies import access_of, context
from service.api.request_bodies import limit_body
from service.web import sessions
from service.web.page_route import PageRoute, sign_in_page

ROUTER = APIRouter(route_class=PageRoute, include_in_schema=False)
FORM_BYTES = 32 * 1024
"""Largest form; an issuer's token with many groups has some kilobytes."""

_SEE_OTHER = 303
_OWN_PAGE = re.compile(r"/(studies/[A-Za-z0-9_.-]+)?")


@ROUTER.get("/sign-in")
async def form(request: Request) -> Response:
    """The form."""
    return sign_in_page(request, 200)


@ROUTER.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Start a session, and show the page that was asked for.

    Raises:
        Unauthorized: The token is unknown.
        Forbidden: The token cannot read, or another site's page sent the form.
        RateLimited: This address has failed too often.
    """
    check_own(request)
    fields = await _fields(request)
    request.state.wanted = target = fields.get("wanted", "/")
    access = await run_in_threadpool(access_of, request, fields.get("token", "").strip())
    response = RedirectResponse(own_page(target), _SEE_OTHER)
    begin_session(request, response, access)
    return response


def begin_session(request: Request, response: Response, access: Access) -> None:
    """Put the cookie of a new session into a response.

    Raises:
        Forbidden: The access does not allow reading.
    """
    app_context = context(request)
    cookie, seconds = sessions.start(app_context.tokens, access, app_context.store.session.clock())
    response.set_cookie(
        sessions.COOKIE, cookie, max_age=seconds, httponly=True, samesite="strict", secure=encrypted(request)
    )


def own_page(target: str) -> str:
    """The page to show after sign-in: the one that was asked for, if it is ours."""
    return target if _OWN_PAGE.fullmatch(target) else "/"


@ROUTER.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """Delete the browser's cookie."""
    check_own(request)
    response = RedirectResponse("/sign-in", _SEE_OTHER)
    response.delete_cookie(sessions.COOKIE, httponly=True, samesite="strict", secure=encrypted(request))
    return response


def check_own(request: Request) -> None:
    """Refuse forms that other sites' pages send: they could sign a reader in as somebody else.

    Raises:
        Forbidden: The browser says that another site's page sent the form.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("this form was sent by a page of another site: open the service's own page")


async def _fields(request: Request) -> dict[str, str]:
    limit_body(request, FORM_BYTES, "")
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return {name: values[0] for name, values in parse_qs(text, max_num_fields=10).items()}
    except ValueError:
        return {}


def encrypted(request: Request) -> bool:
    """Whether the browser speaks https, as far as we or a proxy in front can tell.

    Any proxy is believed: a client that lies gets a cookie that its own browser keeps from plain http.
    """
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").partition(",")[0])
