"""A token bucket: limits a long-run rate, and allows a burst after a pause."""

from __future__ import annotations


class Bucket:
    """Fills at the long-run rate; each event takes one token. Not thread-safe.

    Args:
        per_second: Long-run rate, above 0.
        burst: Capacity in tokens; the bucket starts full.
        now: Time of a monotonic clock, in seconds.
    """

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left, self._then = self._burst, now

    def take(self, now: float) -> float:
        """Takes a token and returns 0; if there is none, returns the seconds until there is one."""
        self._left = min(self._burst, self._left + (now - self._then) * self._per_second)
        self._then = now
        if self._left < 1:
            return (1 - self._left) / self._per_second
        self._left -= 1
        return 0.0
