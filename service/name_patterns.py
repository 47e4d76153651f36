"""Names that an operator allows: patterns in which * stands for any text, and every other character for itself."""

from __future__ import annotations

import re
from collections.abc import Iterable


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of those that the patterns allow.

    Examples:
        >>> matches("ghcr.io/team/train:1", ["ghcr.io/team/*"]), matches("ghcr.io/team", ["ghcr.io/team/*"])
        (True, False)
    """
    return any(re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) for pattern in patterns)
