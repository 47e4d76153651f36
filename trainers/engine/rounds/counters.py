"""Counters of the communication and the gradients of a pack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COUNTERS = ("exchanges", "bytes_down", "bytes_up", "client_gradients", "slowest_examples")
"""Counters on every report line, beside `client_examples` as "examples". `slowest_examples` are those of the client
with the most work, summed over the exchanges, because clients work at the same time; there, a loss without data counts
as many examples as have its operations."""

OVERHEAD = ("client_examples", "central_gradients", "central_examples")
"""Further counters, shown by the report `overhead`: examples in the clients' gradients, and the server's gradients."""

JOINED = "joined_examples"
"""The part of `client_examples` that are the server's, in clients that compute its loss as well."""

SHARED = "shared_gradients"
"""The part of `client_gradients` that was computed for another member of the pack, equal to this one at the time."""


@dataclass
class Counters:
    """Communication and computation of a pack since its start; one number per trial and counter.

    Args:
        totals: counter -> (T,).
    """

    totals: dict[str, NDArray[np.int64]]

    @staticmethod
    def zero(trials: int) -> Counters:
        """Counters at the start."""
        return Counters({name: np.zeros(trials, np.int64) for name in (*COUNTERS, *OVERHEAD, JOINED, SHARED)})

    @staticmethod
    def of(totals: Mapping[str, NDArray[np.int64]], trials: int) -> Counters:
        """Counters with stored totals; counters missing there start at 0.

        Args:
            totals: counter -> (T,).
            trials: T.
        """
        return Counters({**Counters.zero(trials).totals, **totals})

    @property
    def reported(self) -> dict[str, NDArray[np.int64]]:
        """The counters on every report line."""
        return {**{name: self.totals[name] for name in COUNTERS}, "examples": self.totals["client_examples"]}

    def follow(self, leader: Counters) -> None:
        """Takes over the totals of `leader`; the gradients since both were equal count as shared.

        Args:
            leader: counters of the member that trained the round.
        """
        shared = self.totals[SHARED] + leader.totals["client_gradients"] - self.totals["client_gradients"]
        self.totals = {**{name: total.copy() for name, total in leader.totals.items()}, SHARED: shared}

    def add(self, name: str, amount: NDArray[np.int64] | int, alive: NDArray[np.bool_]) -> None:
        """Adds to one counter of the trials that are alive."""
        self.totals[name] += amount * alive
