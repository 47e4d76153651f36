"""Answers that are the same until something new is stored: made once, compressed once, named by an ETag.

A client that sends the ETag back in If-None-Match is answered with 304 and no body.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fastapi import Request, Response

_NOT_MODIFIED = 304
_SMALL = 1024  # bytes that are not worth compressing
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {_NOT_MODIFIED: {"description": "As the ETag in If-None-Match says"}}


@dataclass(frozen=True)
class Body:
    """A JSON answer.

    Attributes:
        raw: Its text.
        zipped: The same, compressed; None for a small one.
        etag: Names these contents.
    """

    raw: bytes
    zipped: bytes | None
    etag: str

    @staticmethod
    def of(value: Any) -> Body:
        """The answer that holds a JSON value."""
        raw = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
        zipped = gzip.compress(raw, compresslevel=5, mtime=0) if len(raw) >= _SMALL else None
        return Body(raw, zipped, f'W/"{sha256(raw).hexdigest()[:24]}"')

    def answer(self, request: Request) -> Response:
        """The response to a request: 304 when its If-None-Match names these contents."""
        headers = {"ETag": self.etag, "Vary": "Accept-Encoding", "Cache-Control": "private, no-cache"}
        if fresh(request, self.etag):
            return Response(None, _NOT_MODIFIED, headers)
        if self.zipped is not None and "gzip" in request.headers.get("accept-encoding", ""):
            zipped = {**headers, "Content-Encoding": "gzip"}
            return Response(self.zipped, headers=zipped, media_type="application/json")
        return Response(self.raw, headers=headers, media_type="application/json")


def fresh(request: Request, etag: str) -> bool:
    """Whether the client has these contents already, by its If-None-Match."""
    given = request.headers.get("if-none-match", "")
    names = {name.strip().removeprefix("W/") for name in given.split(",")}
    return "*" in names or etag.removeprefix("W/") in names


class Bodies:
    """The answers of the studies that were asked for last, each until the study has another version.

    Args:
        kept: How many.
    """

    def __init__(self, kept: int = 64) -> None:
        self._kept = kept
        self._bodies: OrderedDict[str, tuple[int, Body]] = OrderedDict()
        self._turns: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, study_id: str, version: int, make: Callable[[], Any]) -> Body:
        """The answer for a study at a version; made once, however many ask at the same time.

        Args:
            study_id: Id of the study.
            version: Its version, read before `make` is called.
            make: Gives the JSON value.
        """
        with self._lock:
            found = self._found(study_id, version)
            turn = self._turns.setdefault(study_id, threading.Lock())
        if found is not None:
            return found
        with turn:
            with self._lock:
                found = self._found(study_id, version)
            if found is not None:
                return found
            body = Body.of(make())
            with self._lock:
                self._bodies[study_id] = (version, body)
                self._bodies.move_to_end(study_id)
                while len(self._bodies) > self._kept:
                    gone, _ = self._bodies.popitem(last=False)
                    self._turns.pop(gone, None)
            return body

    def _found(self, study_id: str, version: int) -> Body | None:
        kept = self._bodies.get(study_id)
        if kept is None or kept[0] < version:
            return None
        self._bodies.move_to_end(study_id)
        return kept[1]
