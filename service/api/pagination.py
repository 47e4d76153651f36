"""Page tokens: opaque to clients, and valid only for the listing that returned them."""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query
from pydantic import Field, StringConstraints, TypeAdapter

from driftline.errors import InvalidRequest
from driftline.wire.records import Phase

PageSize = Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries per page.")]
PageToken = Annotated[str | None, Query(max_length=2000, description="next_page_token of the previous page.")]

Id = Annotated[str, StringConstraints(max_length=255, pattern=r"^[^\x00]*$")]
Number = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Position = TypeVar("_Position")
_Row = TypeVar("_Row")

BY_ID: TypeAdapter[str] = TypeAdapter(Id)
"""Positions of listings by the ids of studies and tokens."""

BY_NUMBER: TypeAdapter[int] = TypeAdapter(Number)
"""Positions of listings by ids that are numbers."""

BY_TRIAL: TypeAdapter[tuple[str, Phase, int]] = TypeAdapter(tuple[Id, Phase, Annotated[int, Field(ge=0, le=2**31 - 1)]])
"""Positions of listings of trials: label, phase, number."""


def page(
    listing: tuple[Any, ...], rows: Sequence[_Row], size: int, position: Callable[[_Row], Any]
) -> tuple[list[_Row], str | None]:
    """The rows of a page, and the token of the next page, None after the last page.

    Args:
        listing: Name and filters of the listing.
        rows: At least one row more than the page holds, unless there are no more.
        size: Rows per page.
        position: Gives the position of a row, a JSON value after which the next page starts.

    Examples:
        >>> page(("numbers",), [4, 5], 2, lambda number: number)
        ([4, 5], None)
    """
    shown = list(rows[:size])
    return shown, token(listing, position(shown[-1])) if len(rows) > size else None


def token(listing: tuple[Any, ...], position: Any) -> str:
    """A page token.

    Args:
        listing: Name and filters of the listing.
        position: JSON value after which the next page starts.
    """
    text = json.dumps([_mark(listing), position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position(listing: tuple[Any, ...], page_token: str | None, kind: TypeAdapter[_Position]) -> _Position | None:
    """The position in a page token made by `token` for the same listing; None without a token.

    Args:
        listing: Name and filters of the listing.
        page_token: The token.
        kind: Validates the position, because the token may be forged.

    Raises:
        InvalidRequest: The token is malformed, or belongs to another listing.

    Examples:
        >>> position(("studies", "default"), token(("studies", "default"), "01k6"), BY_ID)
        '01k6'
    """
    if page_token is None:
        return None
    try:
        mark, value = json.loads(base64.urlsafe_b64decode(page_token.encode("ascii") + b"=" * (-len(page_token) % 4)))
        if mark == _mark(listing):
            return kind.validate_json(json.dumps(value), strict=True)
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest("page_token", "must be the next_page_token of an earlier page") from None
    raise InvalidRequest("page_token", "must come from the same listing with the same filters; start again without one")


def _mark(listing: tuple[Any, ...]) -> str:
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()[:12]
