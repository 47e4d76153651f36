"""Reads a JSON document value by value, and its lists block by block: memory holds the text of one element."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TextIO

from trainers.data.damage import OtherBytes

_DECODER = json.JSONDecoder()
_PIECE = 2**20  # characters
_BLOCK = 2**18  # characters of a list to decode at once; numbers take up to ten times as many bytes
_MARGIN = 32  # characters: an error this near to the end of a piece may come from a value that continues in the next
_SPACES = re.compile(r"[ \t\r\n]*")


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
        if self.begins() == "}":
            self._at += 1
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise ValueError(f"Expecting a string as key before character {self._before + self._at}")
            self._take(":")
            yield key
            if self._take(",}") == "}":
                return

    def elements(self) -> Iterator[list[Any]]:
        """The elements of the list that begins here, in blocks. Read them all before you ask for anything else.

        Raises:
            ValueError: there is no list, or it is damaged.
            RecursionError: it is nested too deeply.
        """
        self._take("[")
        if self.begins() == "]":
            self._at += 1
            return
        ends = False
        while not ends:
            block: list[Any] = []
            limit = self._before + self._at + _BLOCK
            while not ends and self._before + self._at < limit:
                block += self._run(limit - self._before)
                block.append(self.value())
                ends = self._take(",]") == "]"
            yield block

    def skip(self) -> None:
        """Reads the value that begins here, block by block, and forgets it.

        Raises:
            ValueError: it is damaged.
            RecursionError: it is nested too deeply.
        """
        match self.begins():
            case "[":
                for _ in self.elements():
                    pass
            case "{":
                for _ in self.members():
                    self.skip()
            case _:
                self.value()

    def value(self) -> Any:
        """The value that begins here.

        Raises:
            ValueError: it is damaged.
            RecursionError: it is nested too deeply.
        """
        self.begins()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # A string without an end, and an error near the end, may be a value that has not been read in full.
                whole = error.pos < len(self._text) - _MARGIN and not error.msg.startswith("Unterminated")
                at = self._before + error.pos
                if whole or not self._read():
                    message = error.msg.rstrip(": ").removesuffix(" at")  # "Unterminated string starting at"
                    raise ValueError(f"{message} at character {at}") from error
                continue
            goes_on = isinstance(value, int | float) and end > len(self._text) - _MARGIN
            length = end - self._at
            if goes_on and self._read():
                continue  # a number may go on in the next piece
            self._at += length
            return value

    def end(self) -> None:
        """Checks that nothing follows.

        Raises:
            ValueError: something does.
        """
        if self.begins():
            raise ValueError(f"Extra data at character {self._before + self._at}")

    def _take(self, expected: str) -> str:
        character = self.begins()
        if not character or character not in expected:
            raise ValueError(f"Expecting {' or '.join(expected)} at character {self._before + self._at}")
        self._at += 1
        return character

    def begins(self) -> str:
        """The next character that is not white space, where a value begins; "" at the end of the document."""
        while True:
            self._at = _after_spaces(self._text, self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def _run(self, limit: int) -> list[Any]:
        """The elements of a list that are complete in the text, up to a limit, each with the comma after it.

        The element after them is the last one, continues in the next piece, or is damaged.
        """
        text, values = self._text, []
        with suppress(ValueError, IndexError):
            while self._at < limit:
                value, end = _DECODER.raw_decode(text, _after_spaces(text, self._at))
                end = _after_spaces(text, end)
                if text[end] != ",":
                    break
                values.append(value)
                self._at = end + 1
        return values

    def _read(self) -> bool:
        """Reads at least as much again as is unread, so that decoding a long value piece by piece takes linear time."""
        unread = self._text[self._at :]
        try:
            piece = self._file.read(max(_PIECE, len(unread)))
        except UnicodeDecodeError as error:
            raise OtherBytes from error
        self._before += self._at
        self._text, self._at = unread + piece, 0
        return bool(piece)


def _after_spaces(text: str, at: int) -> int:
    """The first position from `at` on that is not white space."""
    if at < len(text) and text[at] > " ":
        return at
    match = _SPACES.match(text, at)
    assert match is not None
    return match.end()
