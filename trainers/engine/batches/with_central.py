"""Batches for local work on the sum of the client's and the server's loss, as if clients had the server's data too.

In each step all clients of the cohort use the same batch of the server. Every local step takes two gradients.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.engine.oracles.oracle import Batch, Group, RoundBatches

JOINED_COST = 2
"""Number of gradients per local step."""


class JoinedBatch(tuple[Group, ...]):
    """The clients' batches of a step, and the server's batch."""

    central: Batch


class JoinedRound:
    """The batches of a cohort in a round, each with the server's batch of the same step.

    Args:
        batches: batches of the clients.
        central: batches of the server.
    """

    def __init__(self, batches: RoundBatches, central: RoundBatches) -> None:
        self._batches = batches
        self._central = central
        self.clients: NDArray[np.int64] = batches.clients
        self.work = batches.work
        self.always_full = batches.always_full and central.always_full

    def prepare(self, local_steps: int, limits: NDArray[np.int64] | None = None) -> None:
        """Draws the batches of the first `local_steps` steps."""
        self._batches.prepare(local_steps, limits)
        self._central.prepare(local_steps)

    def epoch_steps(self, local_epochs: int) -> NDArray[np.int64]:
        """(M,) steps of `local_epochs` passes of each client over its own data."""
        return self._batches.epoch_steps(local_epochs)

    @property
    def full_gradients(self) -> NDArray[np.int64]:
        """(M,) mini-batches of a pass over a client's own data."""
        return self._batches.full_gradients

    @property
    def full_examples(self) -> NDArray[np.int64]:
        """(M,) examples of each client."""
        return self._batches.full_examples

    def examples(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The examples in each client's first `steps` (..., M) batches, the server's included."""
        return self._batches.examples(steps) + self._central.examples(steps)

    def batch(self, step: int, clients: int) -> Batch:
        """The batches of one step for the first `clients` clients."""
        batch = JoinedBatch(self._batches.batch(step, clients))
        batch.central = self._central.batch(step, 1)
        return batch

    def full(self) -> Batch:
        """All data of every client."""
        batch = JoinedBatch(self._batches.full())
        batch.central = self._central.full()
        return batch

    def distinct(self, steps: int) -> None:
        """None, because a step has batches of two kinds."""
