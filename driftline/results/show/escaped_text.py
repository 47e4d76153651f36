"""Escapes untrusted text, so that it cannot control the terminal, page or spreadsheet that shows it.

The output of workers and the reasons of failures are stored unchanged, and escaped where people see them.
"""

from __future__ import annotations

import unicodedata

_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_FORMULA = ("=", "+", "-", "@")


def escaped(text: str) -> str:
    r"""Text on one line: control characters, line breaks and direction marks become Python's escape sequences.

    Examples:
        >>> print(escaped("safe\x1b]0;title\x07\nforged \u202e line"))
        safe\x1b]0;title\x07\nforged \u202e line
    """
    return "".join(
        character.encode("unicode_escape").decode("ascii") if unicodedata.category(character) in _ESCAPED else character
        for character in text
    )


def spreadsheet_cell(text: str) -> str:
    """Text for a cell of a CSV file; an apostrophe goes before what a spreadsheet would take for a formula.

    Examples:
        >>> spreadsheet_cell("=1+1"), spreadsheet_cell("out of memory")
        ("'=1+1", 'out of memory')
    """
    safe = escaped(text)
    return f"'{safe}" if safe.lstrip().startswith(_FORMULA) else safe
