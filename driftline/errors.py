"""Every error that Driftline raises on purpose, with its HTTP status and its exit code in one place.

    DriftlineError              500   exit 1   an internal failure; the base of all errors
    ├── InvalidSpec             422   exit 2   an invalid study or setting; a ValueError; has .path
    │   └── InvalidRequest      400   exit 2   a malformed request: unknown parameter, page token, size (413)
    ├── Unauthorized            401   exit 3   a missing or unknown token
    │   └── Forbidden           403   exit 3   a known token without the permission
    │       └── QuotaExceeded   403   exit 3   the project's quota is used up; waiting alone does not help
    ├── NotFound                404   exit 4   no such study, trial, label or file; also a LookupError
    ├── Conflict                409   exit 5   the object exists and differs, or its state does not allow the request
    │   └── StaleDriver         409   exit 5   a write by a driver that has been replaced: it must stop at once
    └── Unavailable             503   exit 6   a database, cluster or server is temporarily unavailable: try again
        └── RateLimited         429   exit 6   too many requests from one token, project or address: try again later

A message says what must hold, what was given, and what to do: ``local_steps must be at least 1, got local_steps=0``.
Over HTTP an error travels as problem+json (`problem`) and comes back as the same class (`from_problem`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

PROBLEM_MEDIA_TYPE = "application/problem+json"


class DriftlineError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: One line (for each error): what must hold, what was given, what to do.
        details: JSON values that travel with the error (shown by the API, ignored by the command line).

    Attributes:
        code: Stable short name in problem+json.
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
        path: Dotted key of the invalid value, as the user wrote it: ``methods[0].space.client_lr``; "" for the whole.
        problem: What must hold and what was given, without the path.
        others: Path and problem of further errors in the same specification.
        details: JSON values that travel with the error.

    Attributes:
        errors: Path and problem of every error, this one first. The message has a line for each.
    """

    code = "invalid-spec"
    status = 422
    exit_code = 2

    def __init__(self, path: str, problem: str, others: Iterable[tuple[str, str]] = (), /, **details: Any) -> None:
        self.errors = ((path, problem), *others)
        super().__init__("\n".join(f"{path}: {text}" if path else text for path, text in self.errors), **details)
        self.path = path
        self.problem = problem

    def moved(self, path: Callable[[str], str]) -> InvalidSpec:
        """The same errors, each with its path replaced by `path(old path)`."""
        (first, problem), *others = [(path(old), text) for old, text in self.errors]
        return InvalidSpec(first, problem, others)


class InvalidRequest(InvalidSpec):
    """A malformed request; `path` is the parameter's name."""

    code = "invalid-request"
    status = 400


class Unauthorized(DriftlineError):
    """The token is missing or unknown."""

    code = "unauthorized"
    status = 401
    exit_code = 3


class Forbidden(Unauthorized):
    """The token is known but may not do this: wrong scope, project or study."""

    code = "forbidden"
    status = 403


class QuotaExceeded(Forbidden):
    """The project's quota is used up: something must end, or an admin must raise the quota."""

    code = "quota-exceeded"


class NotFound(DriftlineError, LookupError):
    """Nothing is stored under this name; where possible, the message lists similar names."""

    code = "not-found"
    status = 404
    exit_code = 4


class Conflict(DriftlineError):
    """The object already exists and differs, or its state does not allow the request."""

    code = "conflict"
    status = 409
    exit_code = 5


class StaleDriver(Conflict):
    """The driver has been replaced by another one and must stop writing."""

    code = "stale-driver"


class Unavailable(DriftlineError):
    """Something that the request needs is temporarily unavailable; the same request may succeed later."""

    code = "unavailable"
    status = 503
    exit_code = 6


class RateLimited(Unavailable):
    """Too many requests from one token, project or address; `details["retry_after"]` is the wait in seconds."""

    code = "rate-limited"
    status = 429


def _tree(root: type[DriftlineError]) -> dict[str, type[DriftlineError]]:
    by_code = {root.code: root} if "code" in vars(root) else {}  # a class that inherits its code is not listed
    for child in root.__subclasses__():
        by_code |= _tree(child)
    return by_code


def problem(error: DriftlineError) -> dict[str, Any]:
    """The problem+json body of an error.

    Returns:
        ``{"type", "title", "status", "detail"}`` as in RFC 9457, ``"path"`` and ``"problem"`` for an `InvalidSpec`,
        with ``"errors"`` if there are several, and the error's details under ``"details"`` if there are any.

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
        if len(error.errors) > 1:
            body["errors"] = [{"path": path, "problem": text} for path, text in error.errors]
    if error.details:
        body["details"] = error.details
    return body


def from_problem(status: int, body: Mapping[str, Any]) -> DriftlineError:
    """Builds the error that a problem+json response describes, without raising it.

    Args:
        status: HTTP status of the response.
        body: Its JSON, from any server: for an unknown type, the status decides.

    Returns:
        An error of the class that the server raised; for an unknown type, of the class with this status or the base.

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
        listed = body.get("errors")
        errors = [item for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []
        others = [(str(item.get("path", "")), str(item.get("problem", ""))) for item in errors[1:]]
        return kind(str(body.get("path", "")), str(body.get("problem", detail)), others, **details)
    return kind(detail, **details)
