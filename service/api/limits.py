"""Bodies that are too large are refused before they fill the memory."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import answer
from service.errors import InvalidRequest

_TOO_LARGE = 413


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
