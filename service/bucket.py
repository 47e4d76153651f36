"""A token bucket: what may happen so often in the long run, and more often for a moment after a pause."""

from __future__ import annotations


class Bucket:
    """Fills at the long-run rate; what happens takes one out. One thread at a time may use it.

    Args:
        per_second: The long-run rate, above 0.
        burst: What it holds; it starts full.
        now: Seconds of a clock that never goes back.
    """

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left, self._then = self._burst, now

    def take(self, now: float) -> float:
        """Takes one out: 0. When it is empty, the seconds until there is one."""
        self._left = min(self._burst, self._left + (now - self._then) * self._per_second)
        self._then = now
        if self._left < 1:
            return (1 - self._left) / self._per_second
        self._left -= 1
        return 0.0
