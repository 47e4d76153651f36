"""Request bodies: read after authentication, limited in size and time, checked for JSON that no database can hold."""

import asyncio
import functools
import re
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Asgi

from driftline.errors import InvalidRequest
from service.api.auth.tokens import Access, Scope
from service.api.dependencies import Context, authenticate, context
from service.api.error_responses import Malformed, answer
from service.api.rate_limits import Limits

PATIENCE_S = 30.0
BYTES_A_SECOND = 16 * 1024
"""A body may take PATIENCE_S, plus 1 s for every BYTES_A_SECOND received."""

COMMAND_BYTES = 64 * 1024
"""Largest body of a request other than a study or a driver's report."""

PARSED_AT_ONCE = 64 * 1024
"""A larger body is parsed in a thread."""

_TOO_LARGE = 413
_TOO_SLOW = 408
_CLOSE = {"Connection": "close"}
_LIMIT = "body_limit"
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class BodyLimit:
    """ASGI middleware that answers 413 to a body above a limit, announced or not, and 408 to a slow one.

    The service's limit holds unless a route sets a smaller one with `limit_body`.

    Args:
        app: Gets all other requests.
        bytes_allowed: The service's limit.
        patience_s: How long a body may take, besides what `BYTES_A_SECOND` allows. Only time spent waiting for the
            client counts.
    """

    def __init__(self, app: ASGIApp, bytes_allowed: int, patience_s: float = PATIENCE_S) -> None:
        self._app = app
        self._allowed = bytes_allowed
        self._patience = patience_s

    async def __call__(self, scope: Asgi, receive: Receive, send: Send) -> None:
        """Pass the request on, counting its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (error := _too_large(_announced(scope), self._allowed, "body_bytes")) is not None:
            await answer(error, _TOO_LARGE, _CLOSE)(scope, receive, send)
            return
        await self._app(scope, *self._counted(scope, receive, send))

    def _counted(self, scope: Asgi, receive: Receive, send: Send) -> tuple[Receive, Send]:
        read, waited, whole, answered = 0, 0.0, False, False
        state = scope.setdefault("state", {})  # the route's `request.state`

        def end(error: HTTPException) -> Message:
            if answered:
                return {"type": "http.disconnect"}  # an event stream asks whether its reader is still there
            raise error

        def excess(size: int) -> InvalidRequest | None:
            return _too_large(size, *state.get(_LIMIT, (self._allowed, "body_bytes")))

        async def counted() -> Message:
            nonlocal read, waited, whole
            if whole:
                return await receive()  # the client's disconnect
            if not read and (error := excess(_announced(scope))) is not None:
                return end(Malformed(error, _TOO_LARGE))
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._patience + read / BYTES_A_SECOND - waited):
                    message = await receive()
            except TimeoutError:
                text = f"a request's body must arrive within {self._patience:g} s plus 1 s per {BYTES_A_SECOND} bytes"
                return end(HTTPException(_TOO_SLOW, f"{text}; send it again", _CLOSE))
            waited += time.monotonic() - began
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if (error := excess(read)) is not None:
                return end(Malformed(error, _TOO_LARGE))
            return message

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        return counted, noted


def limit_body(request: Request, limit: int, name: str) -> None:
    """Set the largest body that a request may have.

    Args:
        request: The request; its body must not have been read yet.
        limit: Bytes.
        name: The setting in `Limits` that holds the limit; "" if there is none.
    """
    setattr(request.state, _LIMIT, (limit, name))


def _announced(scope: Asgi) -> int:
    """The Content-Length of a request; 0 if there is none."""
    text = dict(scope["headers"]).get(b"content-length", b"")
    return int(text) if text.isdigit() else 0


def _too_large(size: int, limit: int, name: str) -> InvalidRequest | None:
    if size <= limit:
        return None
    setting = f" ({name} in the service's limits)" if name else ""
    return InvalidRequest("", f"the body must have at most {limit} bytes{setting}, got {size} or more")


class CheckedRequest(Request):
    """A request that rejects JSON that is nested too deeply or that no database can hold."""

    async def json(self) -> Any:
        """The body's value.

        Raises:
            Malformed: See `parse`.
        """
        if not hasattr(self, "_json"):
            body = await self.body()
            read = functools.partial(parse, body)
            try:
                self._json = read() if len(body) <= PARSED_AT_ONCE else await context(self).parsing.run(read)
            except InvalidRequest as error:  # FastAPI passes on only HTTPException from here
                raise Malformed(error) from None
        return self._json


class CheckedRoute(APIRoute):
    """A route with `CheckedRequest`s that checks the token before it reads the body.

    Attributes:
        scope: Scope that the token needs before the body of a POST or PUT is read; None leaves the check to the route.
    """

    scope: Scope | None = None

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, with `CheckedRequest`s."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            allowed = await authenticate(request)
            if self.scope is not None and request.method in ("POST", "PUT"):
                allowed.require(self.scope, request.path_params.get("study_id"))
            app_context = context(request)
            limit_body(request, *self.most_bytes(app_context.limits))
            async with self.turn(app_context, allowed):
                return await handler(CheckedRequest(request.scope, request.receive))

        return handle

    def most_bytes(self, limits: Limits) -> tuple[int, str]:
        """Largest body in bytes, and the setting that holds the limit."""
        return min(COMMAND_BYTES, limits.body_bytes), ""

    def turn(self, app_context: Context, allowed: Access) -> AbstractAsyncContextManager[None]:
        """A context that a request must enter before its body is read."""
        return nullcontext()


class SubmissionRoute(CheckedRoute):
    """A route that checks a study: handles only a few requests of a project at a time."""

    scope = "write"

    def most_bytes(self, limits: Limits) -> tuple[int, str]:
        """The limit of a study."""
        return min(limits.study_bytes, limits.body_bytes), "study_bytes"

    def turn(self, app_context: Context, allowed: Access) -> AbstractAsyncContextManager[None]:
        """One of the project's turns."""
        return app_context.checking.turn(allowed.project)


class DriverRoute(CheckedRoute):
    """A route for drivers' reports, which may be large."""

    scope = "driver"

    def most_bytes(self, limits: Limits) -> tuple[int, str]:
        """The limit of the service."""
        return limits.body_bytes, "body_bytes"


def parse(body: bytes) -> Any:
    """The value of a JSON body.

    Raises:
        InvalidRequest: Not JSON in UTF-8, nested more than 201 deep, or contains NaN, NUL or an unpaired surrogate.

    Examples:
        >>> parse(b'{"rounds": [1, 2.5]}')
        {'rounds': [1, 2.5]}
    """
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest("", f"the body must be JSON in UTF-8, without NaN and half characters: {error}") from None
    if _NUL.search(body):
        raise InvalidRequest("", "the body must hold no NUL character (\\u0000)")
    return value
