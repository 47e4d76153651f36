"""Error responses: all are problem+json (RFC 9457), and all are made here."""

import logging
import math
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from driftline.errors import PROBLEM_MEDIA_TYPE, DriftlineError, InvalidRequest, InvalidSpec, RateLimited, problem
from driftline.study.validation import dotted
from trainers import shown

_LOG = logging.getLogger(__name__)
_TEXTS = {"missing": "must be given", "extra_forbidden": "is an unknown key; remove it"}


class ProblemDetails(BaseModel):
    """An error: the rule, what was given, what to do.

    Attributes:
        type: Kind of error, as ``urn:driftline:...``; stable.
        title: The status in words.
        status: The HTTP status.
        detail: One line for people; a line for each error of an invalid study.
        path: For an invalid specification or request: the invalid key.
        problem: The detail without the path.
        errors: For several errors of a study: path and problem of each, the one above first.
        details: JSON values that belong to the error.
    """

    type: str
    title: str
    status: int
    detail: str
    path: str | None = None
    problem: str | None = None
    errors: list[dict[str, str]] | None = None
    details: dict[str, Any] | None = None


RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {
        "description": text,
        "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
    }
    for code, text in (
        ("4XX", "The request cannot be fulfilled"),
        ("5XX", "The service failed, or is temporarily unavailable"),
    )
}


class Malformed(HTTPException):
    """An invalid body, as the only exception type that FastAPI passes on from `Request.json`.

    Args:
        error: What is wrong with the body.
        status: Replaces the error's own status.
    """

    def __init__(self, error: InvalidRequest, status: int | None = None) -> None:
        super().__init__(status or error.status, error.message)
        self.error = error


def answer(error: DriftlineError, status: int | None = None, headers: dict[str, str] | None = None) -> JSONResponse:
    """The response for an error; `status` replaces the error's own."""
    body = problem(error)
    if status is not None:
        body |= {"status": status, "title": HTTPStatus(status).phrase}
    if body["status"] == HTTPStatus.UNAUTHORIZED:
        headers = {"WWW-Authenticate": "Bearer", **(headers or {})}
    if body["status"] == HTTPStatus.SERVICE_UNAVAILABLE or isinstance(error, RateLimited):
        headers = {"Retry-After": _wait(error), **(headers or {})}
    return JSONResponse(body, body["status"], headers, PROBLEM_MEDIA_TYPE)


def _wait(error: DriftlineError) -> str:
    return str(max(1, math.ceil(error.details.get("retry_after", 1))))


def install(app: FastAPI) -> None:
    """Make the app answer every error with problem+json."""
    app.add_exception_handler(DriftlineError, _ours)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def _ours(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, DriftlineError)
    return answer(error)


def _malformed(_request: Request, error: Exception) -> JSONResponse:
    """The first error of a request: 422 for its body, 400 for its path, query or headers."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    part, *rest = first["loc"]
    text = str(first["msg"]).removeprefix("Value error, ").replace("Input should", "must")
    text = _TEXTS.get(first["type"], text)
    if part != "body":
        got = f", got {shown(first['input'])}" if isinstance(first["input"], str) else ""
        return answer(InvalidRequest(dotted(rest), f"{text}{got}"))
    if first["type"] == "json_invalid":
        return answer(InvalidRequest("", f"the body must be JSON: {first.get('ctx', {}).get('error', text)}"))
    return answer(InvalidSpec(dotted(rest), text))


def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if isinstance(error, Malformed):
        return answer(error.error, error.status_code)
    phrase = HTTPStatus(error.status_code).phrase
    body = {"type": "about:blank", "title": phrase, "status": error.status_code, "detail": str(error.detail)}
    return JSONResponse(body, error.status_code, dict(error.headers or {}), PROBLEM_MEDIA_TYPE)


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer(DriftlineError("the service failed unexpectedly; its log says why"))
