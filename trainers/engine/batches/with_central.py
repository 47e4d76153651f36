"""Local work on the clients' losses and the server's loss at once, as if every client had the server's data as well.

The server's batch of a step is the same for all clients of the cohort. Two gradients are taken for every local step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.oracles.oracle import Batch, Group, Oracle, RoundBatches

JOINED_COST = 2
"""Gradients of a local step."""


class JoinedBatch(tuple[Group, ...]):
    """The clients' batches of a step, and the server's."""

    central: Batch


class Joined(Oracle):
    """The oracle of the losses w f_i + v f_c; the losses that it gives are f_i all the same.

    Args:
        oracle: of the losses f_i.
        central: of the loss f_c, which has one client.
        weight: (T, 1, 1), w; batches may be of the first trials only.
        central_weight: (T, 1, 1), v.
    """

    def __init__(self, oracle: Oracle, central: Oracle, weight: Tensor, central_weight: Tensor) -> None:
        self._oracle = oracle
        self._central = central
        self._weight = weight
        self._central_weight = central_weight

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """See Oracle."""
        return self._oracle.value(params, batch)

    def value_and_grad(self, params: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """See Oracle."""
        assert isinstance(batch, JoinedBatch)
        trials, clients, size = params.shape[0], batch[-1].stop, params.shape[-1]
        loss, own = self._oracle.value_and_grad(params, batch)
        each = params.expand(trials, clients, size).reshape(trials * clients, 1, size)
        shared = self._central.value_and_grad(each, batch.central)[1].reshape(trials, clients, size)
        return loss, self._weight[:trials] * own + self._central_weight[:trials] * shared

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """See Oracle."""
        assert isinstance(batch, JoinedBatch)
        trials, clients, size = params.shape[0], batch[-1].stop, params.shape[-1]
        each, along = (held.expand(trials, clients, size).reshape(-1, 1, size) for held in (params, vector))
        shared = self._central.hvp(each, batch.central, along).reshape(trials, clients, size)
        own = self._oracle.hvp(params, batch, vector)
        return self._weight[:trials] * own + self._central_weight[:trials] * shared

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """See Oracle."""
        loss, gradient = self.value_and_grad(params, batch)
        total[:, : batch[-1].stop] += gradient
        return loss if want_loss else None


class JoinedRound:
    """The batches of a cohort in a round, each with the server's of the same step.

    Args:
        batches: of the clients.
        central: of the server.
    """

    def __init__(self, batches: RoundBatches, central: RoundBatches) -> None:
        self._batches = batches
        self._central = central
        self.clients: NDArray[np.int64] = batches.clients
        self.always_full = batches.always_full and central.always_full

    def prepare(self, local_steps: int) -> None:
        """See RoundBatches."""
        self._batches.prepare(local_steps)
        self._central.prepare(local_steps)

    def epoch_steps(self, local_epochs: int) -> NDArray[np.int64]:
        """See RoundBatches; by the clients' own data."""
        return self._batches.epoch_steps(local_epochs)

    def batch(self, step: int, clients: int) -> Batch:
        """See RoundBatches."""
        found = JoinedBatch(self._batches.batch(step, clients))
        found.central = self._central.batch(step, 1)
        return found

    def full(self) -> Batch:
        """See RoundBatches."""
        found = JoinedBatch(self._batches.full())
        found.central = self._central.full()
        return found
