"""Bodies: too large ones are refused before they fill the memory, and JSON that no database could hold."""

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import Malformed, answer
from service.errors import InvalidRequest

DEPTH = 64
"""Deepest nesting of a body."""

_TOO_LARGE = 413
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # one that never ends is read once, too
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


class BodyLimit:
    """ASGI middleware that answers 413 to a body above a limit, announced or not.

    Args:
        app: What is asked otherwise.
        bytes_allowed: The limit.
    """

    def __init__(self, app: ASGIApp, bytes_allowed: int) -> None:
        self._app = app
        self._allowed = bytes_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._allowed:
            await self._refuse(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._allowed:
                raise HTTPException(_TOO_LARGE, self._text())
            return message

        await self._app(scope, counted, send)

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
    """A route whose requests are `CheckedRequest`s."""

    kind: type[CheckedRequest] = CheckedRequest

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, given the other kind of request."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
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
