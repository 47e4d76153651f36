"""Reads a JSON document value by value: only the text of one value is in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

_DECODER = json.JSONDecoder()
_PIECE = 2**20  # characters
_MARGIN = 32  # an error this close to the end of a piece may be that of a value which goes on in the next
_SPACE = " \t\r\n"


class JsonText:
    """A JSON document.

    Args:
        file: its text.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text, self._at, self._before = "", 0, 0

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here. Read each key's value before you ask for the next key.

        Raises:
            ValueError: there is no object, or it is damaged.
        """
        self._take("{")
        if self._next() == "}":
            self._take("}")
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise ValueError(f"Expecting a string as key before character {self._before + self._at}")
            self._take(":")
            yield key
            if self._take(",}") == "}":
                return

    def value(self) -> Any:
        """The value that begins here.

        Raises:
            ValueError: it is damaged.
            RecursionError: it is nested too deeply.
        """
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # A string without an end, and an error near the end, may be a value that has not been read in full.
                whole = error.pos < len(self._text) - _MARGIN and not error.msg.startswith("Unterminated")
                at = self._before + error.pos
                if whole or not self._read():
                    raise ValueError(f"{error.msg} at character {at}") from error
                continue
            if isinstance(value, int | float) and end > len(self._text) - _MARGIN and self._read():
                continue  # a number may go on in the next piece
            self._at = end
            return value

    def end(self) -> None:
        """Checks that nothing follows.

        Raises:
            ValueError: something does.
        """
        if self._next():
            raise ValueError(f"Extra data at character {self._before + self._at}")

    def _take(self, wanted: str) -> str:
        found = self._next()
        if not found or found not in wanted:
            raise ValueError(f"Expecting {' or '.join(wanted)} at character {self._before + self._at}")
        self._at += 1
        return found

    def _next(self) -> str:
        """The next character that is no space; "" at the end of the document."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def _read(self) -> bool:
        """Reads on, twice as far each time, so that decoding a long value again costs as much as decoding it once."""
        rest = self._text[self._at :]
        piece = self._file.read(max(_PIECE, len(rest)))
        self._before += self._at
        self._text, self._at = rest + piece, 0
        return bool(piece)
