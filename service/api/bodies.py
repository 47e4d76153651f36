"""Bodies: of those who may send one alone; neither too large, nor too slow, nor JSON that no database could hold."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.errors import InvalidRequest
from service.api.context import authenticate
from service.api.problems import Malformed, answer

DEPTH = 64
"""Deepest nesting of a body."""

PATIENCE_S = 30.0
BYTES_A_SECOND = 16 * 1024
"""A body is waited for so long in all, and a second more for so many bytes of it that have come."""

_TOO_LARGE = 413
_TOO_SLOW = 408
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # one that never ends is read once, too
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


class BodyLimit:
    """ASGI middleware that answers 413 to a body above a limit, announced or not, and 408 to one that does not come.

    Args:
        app: What is asked otherwise.
        bytes_allowed: The limit.
        patience_s: How long a body is waited for, besides what `BYTES_A_SECOND` allows. Time in which nobody waits for
            it does not count.
    """

    def __init__(self, app: ASGIApp, bytes_allowed: int, patience_s: float = PATIENCE_S) -> None:
        self._app = app
        self._allowed = bytes_allowed
        self._patience = patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._allowed:
            await self._refuse(scope, receive, send)
            return
        await self._app(scope, *self._counted(receive, send))

    def _counted(self, receive: Receive, send: Send) -> tuple[Receive, Send]:
        read, waited, whole, answered = 0, 0.0, False, False

        def end(error: HTTPException) -> Message:
            if answered:
                return {"type": "http.disconnect"}  # a stream that wants to know whether its reader is there
            raise error

        async def counted() -> Message:
            nonlocal read, waited, whole
            if whole:
                return await receive()  # that the client is gone
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._patience + read / BYTES_A_SECOND - waited):
                    message = await receive()
            except TimeoutError:
                text = f"a request's body must come within {self._patience:g} s and {BYTES_A_SECOND} bytes a second"
                return end(HTTPException(_TOO_SLOW, f"{text}; send it again", {"Connection": "close"}))
            waited += time.monotonic() - began
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if read > self._allowed:
                return end(HTTPException(_TOO_LARGE, self._text(), {"Connection": "close"}))
            return message

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        return counted, noted

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = InvalidRequest("", self._text())
        await answer(error, _TOO_LARGE, {"Connection": "close"})(scope, receive, send)

    def _text(self) -> str:
        return f"a request's body must have at most {self._allowed} bytes; send it in parts"


class CheckedRequest(Request):
    """A request whose JSON body is refused when it is nested too deeply, or holds what no database can hold."""

    allow_nul = False

    async def json(self) -> Any:
        """The body's value.

        Raises:
            Malformed: It is no JSON in UTF-8, nested too deeply, or holds NaN, a NUL or half a character.
        """
        if not hasattr(self, "_json"):
            try:
                self._json = parse(await self.body(), allow_nul=self.allow_nul)
            except InvalidRequest as error:  # FastAPI lets nothing but these through here
                raise Malformed(error) from None
        return self._json


class LenientRequest(CheckedRequest):
    """The same for text that is cleaned rather than refused: the lines of a log."""

    allow_nul = True


class CheckedRoute(APIRoute):
    """A route whose requests are `CheckedRequest`s, and whose tokens are looked at before a body is read."""

    kind: type[CheckedRequest] = CheckedRequest

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, given the other kind of request."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            await authenticate(request)
            return await handler(self.kind(request.scope, request.receive))

        return handle


class LenientRoute(CheckedRoute):
    """A route whose requests are `LenientRequest`s."""

    kind = LenientRequest


def parse(body: bytes, *, allow_nul: bool = False) -> Any:
    """The value of a JSON body.

    Args:
        body: As it came.
        allow_nul: Take texts with NUL and halves of characters, too.

    Raises:
        InvalidRequest: It is no JSON in UTF-8, nested too deeply, or holds NaN, a NUL or half a character.

    Examples:
        >>> parse(b'{"rounds": [1, 2.5]}')
        {'rounds': [1, 2.5]}
    """
    depth = 0
    for bracket in _STRINGS.sub(b"", body).translate(None, _OTHERS):
        depth += 1 if bracket in b"[{" else -1
        if depth > DEPTH:
            raise InvalidRequest("", f"the body must be nested at most {DEPTH} deep, got more")
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise InvalidRequest("", f"the body must be JSON in UTF-8: byte {error.start} cannot be read") from None
    except (ValueError, RecursionError) as error:  # not JSON, or a number of thousands of digits
        raise InvalidRequest("", f"the body must be JSON: {error}") from None
    if not allow_nul:
        if _NUL.search(body):
            raise InvalidRequest("", "the body must hold no NUL character (\\u0000)")
        if _SURROGATE.search(body) and not _whole(value):
            raise InvalidRequest("", "the body must hold whole characters, got half of one (\\ud800 to \\udfff)")
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"numbers must be finite, got {constant}")


def _whole(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
