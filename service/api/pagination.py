"""Page tokens: opaque to clients, and good only for the listing that gave them."""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query
from pydantic import Field, StringConstraints, TypeAdapter

from driftline.errors import InvalidRequest
from driftline.wire.records import Phase

PageSize = Annotated[int, Query(ge=1, le=1000, description="At most so many on a page.")]
PageToken = Annotated[str | None, Query(max_length=2000, description="Where the last page ended: its next_page_token.")]

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
    """The rows of a page, and the token of the next page; None if this is the last one.

    Args:
        listing: What is listed: its name and filters.
        rows: At least one row more than the page holds, unless there are no more.
        size: Rows of the page.
        position: The JSON value from which the listing goes on after a row.

    Examples:
        >>> page(("numbers",), [4, 5], 2, lambda number: number)
        ([4, 5], None)
    """
    shown = list(rows[:size])
    return shown, token(listing, position(shown[-1])) if len(rows) > size else None


def token(listing: tuple[Any, ...], position: Any) -> str:
    """A page token.

    Args:
        listing: What is listed: its name and filters.
        position: JSON value from which the listing goes on.
    """
    text = json.dumps([_mark(listing), position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position(listing: tuple[Any, ...], given: str | None, kind: TypeAdapter[_Position]) -> _Position | None:
    """The position in a token that `token` made for the same listing; None for none.

    Args:
        listing: What is listed: its name and filters.
        given: The token.
        kind: What positions of this listing are; the token may be forged.

    Raises:
        InvalidRequest: The token is none of ours, or of another listing.

    Examples:
        >>> position(("studies", "default"), token(("studies", "default"), "01k6"), BY_ID)
        '01k6'
    """
    if given is None:
        return None
    try:
        mark, found = json.loads(base64.urlsafe_b64decode(given.encode("ascii") + b"=" * (-len(given) % 4)))
        if mark == _mark(listing):
            return kind.validate_json(json.dumps(found), strict=True)
    except (ValueError, TypeError, RecursionError):
        raise InvalidRequest("page_token", "must be the next_page_token of an earlier page") from None
    raise InvalidRequest("page_token", "must come from the same listing with the same filters; start without one")


def _mark(listing: tuple[Any, ...]) -> str:
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()[:12]
