"""Escapes untrusted text, so that it cannot control the terminal, page or spreadsheet that shows it.

The output of workers and the reasons of failures are stored unchanged, and escaped where people see them.
"""

from __future__ import annotations

import json
import re
import unicodedata

_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_FORMULA = re.compile(r"(^|[;,|])(?=[\s\"]*[=+\-@\u2212])")
"""Where a formula begins: at the start of a cell, or after a character that separates cells in some locale."""


def escaped(text: str) -> str:
    r"""Text on one line: control characters, line breaks and direction marks become the escape sequences of JSON.

    Examples:
        >>> print(escaped("safe\x1b]0;title\x07\nforged \u202e line"))
        safe\u001b]0;title\u0007\nforged \u202e line
    """
    if text.isprintable():  # true of most texts: no printable character is in _ESCAPED
        return text
    return "".join(
        _sequence(character) if unicodedata.category(character) in _ESCAPED else character for character in text
    )


def escaped_lines(text: str) -> str:
    """Text of several lines, each escaped; JSON stays JSON with the same value."""
    return "\n".join(map(escaped, text.split("\n")))


def spreadsheet_cell(text: str) -> str:
    """Text for a cell or heading of a CSV file; an apostrophe goes before what a spreadsheet would take for a formula.

    Examples:
        >>> spreadsheet_cell("=1+1"), spreadsheet_cell("x;=1+1"), spreadsheet_cell("out of memory")
        ("'=1+1", "x;'=1+1", 'out of memory')
    """
    safe = escaped(text)
    # a spreadsheet reads full-width and small digits and signs as the usual ones
    if not (plain := safe).isascii():
        plain = "".join(unicodedata.normalize("NFKC", character)[:1] or character for character in safe)
    for start in reversed([match.end() for match in _FORMULA.finditer(plain)]):
        safe = f"{safe[:start]}'{safe[start:]}"
    return safe


def _sequence(character: str) -> str:
    return f"\\u{ord(character):04x}" if character == "\x7f" else json.dumps(character)[1:-1]
