"""Configurations that are tried first, before any of a sampler's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.samplers.base import Hyperparameters, Sampler


class Started:
    """A sampler whose first proposals are given.

    The sampler hears of them as of its own; they count as its first numbers.

    Args:
        inner: Proposes the others.
        points: Whole configurations, for trials 0, 1, ...
        ahead: By how many the sampler's own numbering begins after trial 0; 0 keeps it, so that its own configurations
            of the first numbers are never tried.
    """

    def __init__(self, inner: Sampler, points: Sequence[Hyperparameters], ahead: int = 0) -> None:
        self._inner = inner
        self._points = [dict(point) for point in points]
        self._ahead = ahead

    def ask(self, number: int) -> Hyperparameters:
        """The point of this number; after them, what the sampler proposes."""
        if number >= len(self._points):
            return self._inner.ask(number - self._ahead)
        self._inner.pending(number, self._points[number])
        return dict(self._points[number])

    def pending(self, number: int, hyperparameters: Mapping[str, Any]) -> None:
        """Trial `number` has been proposed and is not finished."""
        self._inner.pending(number, hyperparameters)

    def tell(
        self,
        number: int,
        hyperparameters: Mapping[str, Any],
        values: Mapping[str, float] | None,
        diverged: bool = False,
    ) -> None:
        """How trial `number` went; see the protocol."""
        self._inner.tell(number, hyperparameters, values, diverged)
