"""Given configurations, which are tried before a sampler's own."""

from __future__ import annotations

from collections.abc import Sequence

from service.samplers.sampler import Hyperparameters, PassesOn, Sampler


class Started(PassesOn):
    """Proposes given points first, then what an inner sampler proposes.

    The inner sampler is told the results of the points as if they were its own first proposals.

    Args:
        inner: Proposes all further configurations.
        points: Complete configurations for trials 0, 1, ...
        ahead: Trial at which the inner sampler's numbering begins. With 0 it has the trials' numbers, so that its own
            proposals for the first trials are never tried.
    """

    def __init__(self, inner: Sampler, points: Sequence[Hyperparameters], ahead: int = 0) -> None:
        super().__init__(inner)
        self._points = [dict(point) for point in points]
        self._ahead = ahead

    def ask(self, number: int) -> Hyperparameters:
        """The point with this number; after the points, the inner sampler's proposal."""
        if number >= len(self._points):
            return self._inner.ask(number - self._ahead)
        self._inner.pending(number, self._points[number])
        return dict(self._points[number])
