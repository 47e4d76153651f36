"""Page tokens: opaque to clients, and good only for the listing that gave them."""

import base64
import binascii
import hashlib
import json
from typing import Annotated, Any

from fastapi import Query

from service.errors import InvalidRequest

PageSize = Annotated[int, Query(ge=1, le=1000, description="At most so many on a page.")]
PageToken = Annotated[str | None, Query(max_length=2000, description="Where the last page ended: its next_page_token.")]


def token(listing: tuple[Any, ...], position: Any) -> str:
    """A page token.

    Args:
        listing: What is listed: its name and filters.
        position: JSON value from which the listing goes on.
    """
    text = json.dumps([_mark(listing), position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position(listing: tuple[Any, ...], given: str | None) -> Any:
    """The position in a token that `token` made for the same listing; None for none.

    Raises:
        InvalidRequest: The token is none of ours, or of another listing.

    Examples:
        >>> position(("studies", "default"), token(("studies", "default"), "01k6"))
        '01k6'
    """
    if given is None:
        return None
    try:
        mark, found = json.loads(base64.urlsafe_b64decode(given.encode("ascii") + b"=" * (-len(given) % 4)))
    except (ValueError, TypeError, binascii.Error):
        raise InvalidRequest("page_token", "must be the next_page_token of an earlier page") from None
    if mark != _mark(listing):
        raise InvalidRequest("page_token", "must come from the same listing with the same filters; start without one")
    return found


def _mark(listing: tuple[Any, ...]) -> str:
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()[:12]
