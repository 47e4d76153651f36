"""The scale on which qualities are compared and averaged: logarithmic for losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.results.curves import Array
from driftline.study.directions import direction

RESOLUTION = 1e-12
"""On a logarithmic axis, qualities below this share of the untrained model's count as this share: they are rounding."""

ROUNDING = 1e-9
"""Numbers whose relative difference is smaller count as equal: the difference is rounding."""


_DIGITS = 12


@dataclass(frozen=True)
class Axis:
    """How good a value of a metric is.

    Attributes:
        rising: Whether larger values are better.
        floor: Smallest value on a logarithmic axis, as which smaller values count; None if the axis is linear.
    """

    rising: bool
    floor: float | None = None

    @property
    def logarithmic(self) -> bool:
        """Whether the axis is logarithmic."""
        return self.floor is not None

    def merit(self, quality: Array) -> Array:
        """The quality, oriented so that larger is better: q, -q, or -log10 q."""
        if self.floor is not None:
            return np.asarray(-np.log10(np.maximum(quality, self.floor)))
        return np.asarray(quality if self.rising else np.negative(quality))

    def quality(self, merit: Array) -> Array:
        """The quality of a merit: the inverse of `merit`."""
        if self.floor is not None:
            return np.asarray(10.0 ** np.negative(merit))
        return np.asarray(merit if self.rising else np.negative(merit))

    def without_rounding(self, merit: Array) -> Array:
        """The merit to 12 digits: sums of equal numbers in another order differ in the last ones."""
        if self.floor is not None:
            return np.asarray(np.round(merit, _DIGITS))
        size = np.where(merit == 0, 1.0, 10.0 ** np.floor(np.log10(np.where(merit == 0, 1.0, np.abs(merit)))))
        return np.asarray(np.round(merit / size, _DIGITS) * size)


def axis_of(metric: str, starts: Iterable[float], least: float) -> Axis:
    """The axis of a metric: logarithmic if it falls and all its values are positive, up to rounding.

    Args:
        metric: Its name.
        starts: Its values for untrained models.
        least: Its smallest value in the study.
    """
    if direction(metric) == "rises":
        return Axis(rising=True)
    floor = RESOLUTION * min(starts, default=0.0)
    return Axis(rising=False, floor=floor if floor > 0 and least >= -floor else None)


def stored_axis(result: Mapping[str, Any]) -> Axis:
    """The axis of a result.

    Args:
        result: The document from `driftline.results.document.frontier_document`.
    """
    return Axis(result["definitions"]["parameters"]["direction"] == "rises", result["scale"]["floor"])


@dataclass(frozen=True)
class Scale:
    """One scale for all labels and seeds of a study: 0 is the untrained model, 1 the best final quality.

    Attributes:
        axis: Linear or logarithmic.
        start: Quality at 0, in the metric's unit.
        best: Quality at 1, in the metric's unit.
    """

    axis: Axis
    start: float
    best: float

    def scaled(self, quality: Array) -> Array:
        """(q - start) / (best - start) on the axis, not clipped; 0 everywhere if nothing was learned."""
        start, best = (float(self.axis.merit(np.array(value))) for value in (self.start, self.best))
        if best - start <= ROUNDING * max(1.0, abs(start)):
            return np.zeros_like(np.asarray(quality, dtype=np.float64))
        return np.asarray((self.axis.merit(quality) - start) / (best - start))
