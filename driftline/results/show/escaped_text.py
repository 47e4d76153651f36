"""Text from elsewhere, shown so that it can do nothing to the terminal, page or spreadsheet that shows it.

What a worker printed or why a study failed is data: it is stored as it came, and escaped where people see it.
"""

from __future__ import annotations

import unicodedata

_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_FORMULA = ("=", "+", "-", "@")


def escaped(text: str) -> str:
    r"""Text on one line, with control characters, line breaks and marks of direction as Python writes them.

    Examples:
        >>> print(escaped("safe\x1b]0;title\x07\nforged \u202e line"))
        safe\x1b]0;title\x07\nforged \u202e line
    """
    return "".join(
        character.encode("unicode_escape").decode("ascii") if unicodedata.category(character) in _ESCAPED else character
        for character in text
    )


def spreadsheet_cell(text: str) -> str:
    """Text for a cell of a CSV file; what a spreadsheet would take for a formula begins with an apostrophe.

    Examples:
        >>> spreadsheet_cell("=1+1"), spreadsheet_cell("out of memory")
        ("'=1+1", 'out of memory')
    """
    safe = escaped(text)
    return f"'{safe}" if safe.lstrip().startswith(_FORMULA) else safe
