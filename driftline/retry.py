"""How long to wait before something is tried again."""

from __future__ import annotations

import random
from collections.abc import Iterator


def pauses(first: float, longest: float, *, factor: float = 2.0, jitter: float = 0.0) -> Iterator[float]:
    """Seconds to wait before each further attempt, without end; start again with a new iterator after a success.

    Args:
        first: The first pause.
        longest: No later pause is longer.
        factor: Each pause is this many times the one before.
        jitter: Largest share of a pause that is left out at random, so that clients do not come back together.

    Examples:
        >>> from itertools import islice
        >>> list(islice(pauses(1, 5), 5))
        [1, 2.0, 4.0, 5, 5]
    """
    pause = first
    while True:
        yield pause * (1 - random.uniform(0, jitter)) if jitter else pause
        pause = min(factor * pause, longest)
