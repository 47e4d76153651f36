"""What a pack has used: messages and gradients, counted where they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COUNTERS = ("exchanges", "bytes_down", "bytes_up", "client_gradients")
"""On every report line."""

OVERHEAD = ("client_examples", "central_gradients", "central_examples")
"""Kept too, for those who ask: the examples of all gradients of the clients, and the server's own gradients."""


@dataclass
class Counters:
    """What a pack has used since its start; one number a trial.

    Args:
        totals: counter -> (T,).
    """

    totals: dict[str, NDArray[np.int64]]

    @staticmethod
    def zero(trials: int) -> Counters:
        """Counters of a pack that has done nothing."""
        return Counters({name: np.zeros(trials, np.int64) for name in (*COUNTERS, *OVERHEAD)})

    @staticmethod
    def of(totals: Mapping[str, NDArray[np.int64]], trials: int) -> Counters:
        """Counters as they were kept; those that were not counted then begin at 0.

        Args:
            totals: counter -> (T,).
            trials: T.
        """
        return Counters({**Counters.zero(trials).totals, **totals})

    @property
    def reported(self) -> dict[str, NDArray[np.int64]]:
        """Those on every report line."""
        return {name: self.totals[name] for name in COUNTERS}

    def add(self, name: str, amount: NDArray[np.int64] | int, alive: NDArray[np.bool_]) -> None:
        """Adds to one counter of the trials that are alive."""
        self.totals[name] += np.where(alive, amount, 0)
