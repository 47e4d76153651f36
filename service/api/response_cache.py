"""Cache of answers that change only when something new is stored: made once, compressed once, identified by an ETag.

A client that sends the ETag in If-None-Match gets 304 and no body.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import Request, Response

_NOT_MODIFIED = 304
_SMALL = 1024  # smaller answers are not compressed
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    _NOT_MODIFIED: {"description": "The ETag in If-None-Match still holds"}
}


@dataclass(frozen=True)
class Body:
    """An answer.

    Attributes:
        raw: The text.
        zipped: The text gzipped; None for a small one.
        etag: ETag of the text.
        media_type: Media type of the text.
    """

    raw: bytes
    zipped: bytes | None
    etag: str
    media_type: str = "application/json"

    @staticmethod
    def of(value: Any) -> Body:
        """The answer that holds a JSON value."""
        return Body.text(Body.json(value), "application/json")

    @staticmethod
    def json(value: Any) -> str:
        """A JSON value as text."""
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    @staticmethod
    def text(text: str, media_type: str) -> Body:
        """The answer that holds a text."""
        raw = text.encode()
        zipped = gzip.compress(raw, compresslevel=5, mtime=0) if len(raw) >= _SMALL else None
        return Body(raw, zipped, f'W/"{sha256(raw).hexdigest()[:24]}"', media_type)

    def answer(self, request: Request) -> Response:
        """The response to a request: 304 if its If-None-Match holds this ETag."""
        headers = {"ETag": self.etag, "Vary": "Accept-Encoding", "Cache-Control": "private, no-cache"}
        if fresh(request, self.etag):
            return Response(None, _NOT_MODIFIED, headers)
        if self.zipped is not None and "gzip" in request.headers.get("accept-encoding", ""):
            zipped = {**headers, "Content-Encoding": "gzip"}
            return Response(self.zipped, headers=zipped, media_type=self.media_type)
        return Response(self.raw, headers=headers, media_type=self.media_type)


def fresh(request: Request, etag: str) -> bool:
    """Whether the client's If-None-Match holds this ETag."""
    header = request.headers.get("if-none-match", "")
    names = {name.strip().removeprefix("W/") for name in header.split(",")}
    return "*" in names or etag.removeprefix("W/") in names


class Bodies:
    """Keeps the latest answers, each until its study has a newer version.

    Making an answer takes seconds for a large study. It is made once for all requests that wait for it, in threads of
    the cache's own; waiting requests hold no thread. Use from one event loop.

    Args:
        kept: Maximum number of answers.
        bytes_kept: Maximum memory for them; the newest answer is kept whatever its size.
        at_once: How many answers are made at the same time.
    """

    def __init__(self, kept: int = 64, bytes_kept: int = 128 * 2**20, at_once: int = 2) -> None:
        self._kept = kept
        self._bytes_kept = bytes_kept
        self._at_once = at_once
        self._limiter: CapacityLimiter | None = None
        self._bodies: OrderedDict[Hashable, tuple[int, Body]] = OrderedDict()
        self._making: dict[Hashable, tuple[int, asyncio.Task[Body]]] = {}

    async def get(self, key: Hashable, version: int, make: Callable[[], Any]) -> Body:
        """The answer about a study at this version or a later one.

        While an older version is being made, requests for a later one wait, and then share the next answer.

        Args:
            key: Identifies the answer.
            version: The study's version, read before `make` is called.
            make: Returns the JSON value or the `Body`; called in a thread.
        """
        while (body := self._found(key, version)) is None:
            at, task = self._making.get(key) or self._start(key, version, make)
            if at >= version:
                return await asyncio.shield(task)  # a request that gives up must not cancel it for the others
            await asyncio.wait([task])
        return body

    def _start(self, key: Hashable, version: int, make: Callable[[], Any]) -> tuple[int, asyncio.Task[Body]]:
        started = self._making[key] = version, asyncio.create_task(self._make(key, version, make))
        started[1].add_done_callback(lambda task: task.cancelled() or task.exception())  # marks it as retrieved
        return started

    async def _make(self, key: Hashable, version: int, make: Callable[[], Any]) -> Body:
        self._limiter = self._limiter or CapacityLimiter(self._at_once)
        try:
            body = await to_thread.run_sync(lambda: _body(make()), limiter=self._limiter)
        finally:
            del self._making[key]
        self._bodies[key] = (version, body)
        self._bodies.move_to_end(key)
        while len(self._bodies) > 1 and (len(self._bodies) > self._kept or self._bytes() > self._bytes_kept):
            self._bodies.popitem(last=False)
        return body

    def _bytes(self) -> int:
        return sum(len(body.raw) + len(body.zipped or b"") for _, body in self._bodies.values())

    def _found(self, key: Hashable, version: int) -> Body | None:
        kept = self._bodies.get(key)
        if kept is None or kept[0] < version:
            return None
        self._bodies.move_to_end(key)
        return kept[1]


def _body(content: Any) -> Body:
    return content if isinstance(content, Body) else Body.of(content)
