"""What all pages share: templates, security headers, errors as pages, and the signed-in reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from datetime import datetime
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from driftline.errors import DriftlineError, Forbidden, NotFound, Unauthorized
from driftline.results.show.escaped_text import escaped
from service.api.auth.tokens import FOR_CLIENTS, Access
from service.api.dependencies import context
from service.api.error_responses import answer
from service.web import sessions

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TEMPLATES = Environment(
    loader=PackageLoader("service.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **values: Any) -> str:
    """The text of a page.

    Args:
        template: Name of a file in `templates`.
        values: The template's variables; all are escaped.
    """
    return _TEMPLATES.get_template(template).render(values)


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page with the head that names the signed-in reader."""
    reader: Access | None = getattr(request.state, "access", None)
    return HTMLResponse(render(template, reader=reader, **values), status)


class PageRoute(APIRoute):
    """A route that answers with a page, errors included, and with strict headers. It needs no session.

    Attributes:
        policy: The Content-Security-Policy of all its answers.
    """

    policy = _POLICY

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, after `admit`."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                await self.admit(request)
                response = await handler(request)
            except DriftlineError as error:
                response = self.refuse(request, error, error.status, str(error))
                if (wait := answer(error).headers.get("Retry-After")) is not None:
                    response.headers["Retry-After"] = wait
            except HTTPException as error:
                response = self.refuse(request, error, error.status_code, str(error.detail))
            except RequestValidationError as error:
                response = self.refuse(request, error, HTTPStatus.BAD_REQUEST, "this address has an invalid parameter")
            response.headers["Content-Security-Policy"] = self.policy
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return handle

    async def admit(self, request: Request) -> None:
        """Raise an error unless the request may go on.

        Raises:
            NotFound: The address holds NUL, which some databases reject.
        """
        if "\x00" in request.scope["path"]:
            raise NotFound("no page has this address")

    def refuse(self, request: Request, error: Exception, status: int, message: str) -> Response:
        """The page for an error: the form to sign in, if that helps."""
        message = message.replace(FOR_CLIENTS, "")
        if isinstance(error, Unauthorized) and not isinstance(error, Forbidden):
            return sign_in_page(request, status, message)
        return page(request, "problem.html", status, title=HTTPStatus(status).phrase, message=message)


class ReaderRoute(PageRoute):
    """A page for signed-in readers. The API's dependencies take the session's access for the request's."""

    async def admit(self, request: Request) -> None:
        """Check the session, and that its token still allows reading.

        Raises:
            Unauthorized: No session, or one that has ended.
            RateLimited: The session's token was used too often.
        """
        await super().admit(request)
        request.state.access = await run_in_threadpool(_reader, request)


class FrameRoute(ReaderRoute):
    """A page with inline scripts, for a frame: they run in an origin of their own, without cookies and network."""

    policy = (
        "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "frame-ancestors 'self'"
    )

    def refuse(self, request: Request, error: Exception, status: int, message: str) -> Response:
        """The error as plain text."""
        return PlainTextResponse(escaped(message) or "sign in first", status)


def sign_in_page(request: Request, status: int, message: str = "") -> HTMLResponse:
    """The form that asks for a token, and leads to the page that was asked for."""
    target = getattr(request.state, "wanted", request.url.path)
    # A browser that follows another site's link keeps a strict cookie back: let it ask once more, from our own page.
    again = request.headers.get("sec-fetch-site") == "cross-site" and request.method == "GET"
    flow = context(request).tokens.code_flow
    issuer = None if flow is None else flow.host
    return page(request, "sign_in.html", status, message=message, wanted=target, again=again, issuer=issuer)


def _reader(request: Request) -> Access:
    app_context = context(request)
    cookie = request.cookies.get(sessions.COOKIE)
    if cookie is None:
        raise Unauthorized("")
    signed_in = sessions.read(app_context.tokens, cookie, app_context.store.session.clock())
    app_context.rates.take(signed_in.id)
    return signed_in.access(app_context.tokens)


def _moment(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _code(text: str) -> Markup:
    """Text with code in backticks as HTML."""
    return Markup(re.sub(r"`+([^`]+)`+", r"<code>\1</code>", str(escape(text))))


_TEMPLATES.filters |= {"plain": escaped, "moment": _moment, "code": _code}
