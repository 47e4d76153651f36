"""How long to wait before something is tried again."""

from __future__ import annotations

import random
from collections.abc import Iterator


def pauses(first: float, longest: float, *, factor: float = 2.0, jitter: float = 0.0) -> Iterator[float]:
    """Seconds to wait before each further attempt, without end. After a success, start a new iterator.

    Args:
        first: The first pause.
        longest: Limit of all later pauses.
        factor: Each pause is this many times the one before.
        jitter: Each pause is shortened at random by up to this share, so that clients do not return all at once.

    Examples:
        >>> from itertools import islice
        >>> list(islice(pauses(1, 5), 5))
        [1, 2.0, 4.0, 5, 5]
    """
    pause = first
    while True:
        yield pause * (1 - random.uniform(0, jitter)) if jitter else pause
        pause = min(factor * pause, longest)
