"""Messages with lines of a driver's log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from driftline.wire.records import Record

LINE_CHARACTERS = 4000
"""Longer lines are cut."""
LINES_AT_ONCE = 1000


def storable(text: str) -> str:
    r"""The text with other characters in place of NUL and half surrogate pairs, which no database can store.

    Examples:
        >>> storable("a\x00b \ud800")
        'a�b ?'
    """
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


Storable = Annotated[str, AfterValidator(storable)]
"""Text that may come from anywhere, such as the message of an exception: no character makes it invalid."""


def _text(value: str) -> str:
    """Storable, and cut to `LINE_CHARACTERS`; no line is refused."""
    clean = storable(value)
    return clean if len(clean) <= LINE_CHARACTERS else f"{clean[: LINE_CHARACTERS - 4]} ..."


Text = Annotated[str, AfterValidator(_text)]


class NewLine(Record):
    """A line of a driver's log.

    Attributes:
        at: When it was written, in seconds since 1970.
        level: "debug", "info", "warning", "error" or whatever the driver calls it.
        text: The line; cut at 4,000 characters.
    """

    model_config = ConfigDict(strict=True)

    at: float = Field(ge=0, lt=253_402_300_800, allow_inf_nan=False)
    level: Annotated[str, AfterValidator(lambda level: _text(level)[:16])] = "info"
    text: Text


class NewLines(Record):
    """POST logs. Repeating the last request of a study adds nothing.

    Attributes:
        attempt: The driver's attempt; a driver that has been replaced may still send its last lines.
        lines: The lines, in order.
    """

    model_config = ConfigDict(strict=True)

    attempt: int = Field(ge=0, le=2**31 - 1)
    lines: list[NewLine] = Field(max_length=LINES_AT_ONCE)


class LogLine(Record):
    """A stored line.

    Attributes:
        id: Increases from line to line; the parameter `after` takes it.
        at: When it was written.
        attempt: Attempt of the driver that wrote it.
        level: As the driver calls it; "note" for the service's own remarks about dropped lines.
        text: The line.
    """

    id: int
    at: datetime
    attempt: int
    level: str
    text: str


class LogPage(Record):
    """Lines in order. `next_page_token` is None at the end; for later lines, ask again after the last line's id."""

    lines: list[LogLine]
    next_page_token: str | None = None


class StoredLines(Record):
    """Answer to `NewLines`: how many lines were added, 0 for a repetition."""

    stored: int
