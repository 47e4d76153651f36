"""Every error that Driftline raises on purpose, with its HTTP status and its exit code in one place.

    DriftlineError              500   exit 1   something of ours failed; the base of all
    ├── InvalidSpec             422   exit 2   an invalid study or setting; a ValueError; has .path
    │   └── InvalidRequest      400   exit 2   a malformed request: unknown parameter, page token, size (413)
    ├── Unauthorized            401   exit 3   no token, or one that is not known
    │   └── Forbidden           403   exit 3   a known token that may not do this
    │       └── QuotaExceeded   403   exit 3   the project has used up what it may have; waiting alone does not help
    ├── NotFound                404   exit 4   no such study, trial, label or file; also a LookupError
    ├── Conflict                409   exit 5   the thing exists and differs, or its state does not allow this
    │   └── StaleDriver         409   exit 5   a write under an attempt that has been taken over: stop at once
    └── Unavailable             503   exit 6   a database, cluster or server that is away for now: try again
        └── RateLimited         429   exit 6   too many requests of one token, project or address: try again later

A message says what must hold, what came, and what to do: ``local_steps must be at least 1, got local_steps=0``.
Over HTTP an error travels as problem+json (`problem`) and comes back as the same class (`from_problem`).
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

PROBLEM_MEDIA_TYPE = "application/problem+json"


class DriftlineError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: One line: what must hold, what came, what to do.
        details: JSON values that travel with the error (shown by the API, ignored by the command line).

    Attributes:
        code: Short name in problem+json, stable.
        status: HTTP status.
        exit_code: Exit code of the command line.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return self.message


class InvalidSpec(DriftlineError, ValueError):
    """An invalid specification, found before anything started.

    Args:
        path: Dotted key where it is wrong, as the user wrote it: ``methods[0].space.client_lr``; "" for the whole.
        problem: What must hold and what came, without the path.
        details: JSON values that travel with the error.
    """

    code = "invalid-spec"
    status = 422
    exit_code = 2

    def __init__(self, path: str, problem: str, **details: Any) -> None:
        super().__init__(f"{path}: {problem}" if path else problem, **details)
        self.path = path
        self.problem = problem


class InvalidRequest(InvalidSpec):
    """A malformed request; `path` is the parameter's name."""

    code = "invalid-request"
    status = 400


class Unauthorized(DriftlineError):
    """No token was given, or it is not known."""

    code = "unauthorized"
    status = 401
    exit_code = 3


class Forbidden(Unauthorized):
    """The token is known but may not do this: wrong scope, project or study."""

    code = "forbidden"
    status = 403


class QuotaExceeded(Forbidden):
    """The project has what it may have: something must end, or an admin must allow more."""

    code = "quota-exceeded"


class NotFound(DriftlineError, LookupError):
    """Nothing is stored under this name; the message lists near ones where it can."""

    code = "not-found"
    status = 404
    exit_code = 4


class Conflict(DriftlineError):
    """It exists already and differs, or its state does not allow what was asked."""

    code = "conflict"
    status = 409
    exit_code = 5


class StaleDriver(Conflict):
    """The study's driver has been replaced: whoever gets this must stop writing."""

    code = "stale-driver"


class Unavailable(DriftlineError):
    """Something needed is away for now; the same request may succeed later."""

    code = "unavailable"
    status = 503
    exit_code = 6


class RateLimited(Unavailable):
    """Too many requests of one token, project or address; `details["retry_after"]` is the wait in seconds."""

    code = "rate-limited"
    status = 429


def _tree(root: type[DriftlineError]) -> dict[str, type[DriftlineError]]:
    found = {root.code: root} if "code" in vars(root) else {}  # one without a code of its own stays in its module
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


def problem(error: DriftlineError) -> dict[str, Any]:
    """The problem+json body of an error.

    Returns:
        ``{"type", "title", "status", "detail"}`` as in RFC 9457, ``"path"`` and ``"problem"`` for an `InvalidSpec`,
        and the error's details under ``"details"`` when there are any.

    Examples:
        >>> problem(NotFound("no study 'abc'"))
        {'type': 'urn:driftline:not-found', 'title': 'Not Found', 'status': 404, 'detail': "no study 'abc'"}
    """
    body: dict[str, Any] = {
        "type": f"urn:driftline:{error.code}",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": error.message,
    }
    if isinstance(error, InvalidSpec):
        body |= {"path": error.path, "problem": error.problem}
    if error.details:
        body["details"] = error.details
    return body


def from_problem(status: int, body: Mapping[str, Any]) -> DriftlineError:
    """The error that a problem+json answer stands for (not raised).

    Args:
        status: HTTP status of the answer.
        body: Its JSON; need not be ours: an unknown type falls back on the status.

    Returns:
        An error of the class that was raised at the other end, or of the base class.

    Examples:
        >>> from_problem(409, {"type": "urn:driftline:stale-driver", "detail": "attempt 3 has been replaced by 4"})
        StaleDriver('attempt 3 has been replaced by 4')
    """
    classes = _tree(DriftlineError)
    name = str(body.get("type", "")).removeprefix("urn:driftline:")
    by_status = {kind.status: kind for kind in reversed(classes.values())}
    fallback = by_status.get(status, Unavailable if status in (502, 503, 504) else DriftlineError)
    kind = classes.get(name, fallback)
    detail = str(body.get("detail") or body.get("title") or f"the server answered with status {status}")
    raw = body.get("details")
    details: dict[str, Any] = {str(key): value for key, value in raw.items()} if isinstance(raw, Mapping) else {}
    if issubclass(kind, InvalidSpec):
        return kind(str(body.get("path", "")), str(body.get("problem", detail)), **details)
    return kind(detail, **details)
