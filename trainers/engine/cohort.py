"""The cohort of a round, as a method sees it: runs the clients, takes means, counts what is exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine import meta
from trainers.engine.central import Central, weighted
from trainers.engine.local import Local, LocalWork
from trainers.engine.oracle import Batch, Oracle, RoundBatches
from trainers.engine.shifted import Shifted

COUNTERS = ("exchanges", "bytes_down", "bytes_up", "client_gradients")


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
        return Counters({name: np.zeros(trials, np.int64) for name in COUNTERS})

    def add(self, name: str, amount: NDArray[np.int64] | int, alive: NDArray[np.bool_]) -> None:
        """Adds to one counter of the trials that are alive."""
        self.totals[name] += np.where(alive, amount, 0)


class Cohort:
    """The clients of one round, for all trials of a pack.

    Args:
        oracle: of the model.
        batches: of the round.
        weights: (M,) of the clients, sum 1.
        parameters: true number of parameters of the model.
        counters: added to.
        alive: (T,), trials that have not diverged.
        central: the server's own data; None where it has none.
    """

    def __init__(
        self,
        oracle: Oracle,
        batches: RoundBatches,
        weights: Tensor,
        parameters: int,
        counters: Counters,
        alive: NDArray[np.bool_],
        central: Central | None = None,
    ) -> None:
        self._oracle = oracle
        self._batches = batches
        self._weights = weights
        self._parameters = parameters
        self._counters = counters
        self._alive = alive
        self._central = central
        self._loss: tuple[Tensor, Tensor] | None = None
        self._broadcast: Tensor | None = None

    @property
    def clients(self) -> int:
        """M."""
        return len(self._batches.clients)

    @property
    def central(self) -> Central:
        """The server's own loss; RuntimeError for a method that does not say CENTRAL = True."""
        if self._central is None:
            raise RuntimeError("a method must say CENTRAL = True to have central data, it did not")
        return self._central

    def local(
        self,
        params: Tensor,
        work: LocalWork,
        down: Sequence[Tensor] = (),
        up: int = 1,
        gradients_at: Tensor | None = None,
        loss_weight: Tensor | None = None,
    ) -> Local:
        """Broadcasts, lets every client work, and collects: one exchange.

        Args:
            params: (T, 1, P), broadcast, unless the clients hold it from the round's last exchange.
            work: what the clients do.
            down: further model-sized tensors that are broadcast with it.
            up: model-sized tensors that every client returns.
            gradients_at: (T, M, P) added to a client's model wherever its loss is differentiated; None is 0.
            loss_weight: (T, 1, 1) multiplies the losses; None is 1.
        """
        oracle = self._oracle if gradients_at is None else Shifted(self._oracle, gradients_at)
        done = weighted(oracle, self._batches, params, work, self._alive, loss_weight)
        if work.displacement is None and gradients_at is None:
            self._loss = (params, done.first_loss)
        self._count(self._sent(params) + len(down), up, done.steps.sum(1))
        return done

    def meta_gradients(self, params: Tensor, work: LocalWork, unbiased: bool = False) -> Local:
        """Every client's gradient of its loss after local training, through all its steps: one exchange.

        Args:
            params: (T, 1, P), broadcast.
            work: client_lr, local_steps, prox and weight_decay.
            unbiased: independent batches for Hessians and gradients (engine/meta.py).
        """
        done = meta.run(self._oracle, self._batches, params, work, self._alive, unbiased)
        self._loss = (params, done.first_loss)
        self._count(self._sent(params), 1, done.steps.sum(1))
        return done

    def gradients(self, params: Tensor, full: bool = False) -> Tensor:
        """Every client's gradient at the broadcast model, (T, M, P): one exchange.

        Args:
            params: (T, 1, P), broadcast.
            full: on all data of the client, which counts as the mini-batches of one pass over them; else on its first
                batch.
        """
        loss, gradients = self._oracle.value_and_grad(params, self.data("full" if full else "batches"))
        if not full:
            self._loss = (params, loss)
        each = int(self._batches.epoch_steps(1).sum()) if full else self.clients
        self._count(self._sent(params), 1, np.full(len(self._alive), each, np.int64))
        return gradients

    def mean(self, values: Tensor) -> Tensor:
        """The weighted mean over the cohort.

        Args:
            values: (T, M, P), or (T, M).

        Returns:
            (T, 1, P), or (T,).
        """
        if values.dim() == 2:
            return values @ self._weights
        trials, clients, size = values.shape
        flat = values.transpose(0, 1).reshape(clients, trials * size)
        return (self._weights @ flat).view(trials, 1, size)

    def loss(self, params: Tensor, data: str) -> Tensor:
        """The mean loss of the broadcast model before local work, (T,); nothing is counted.

        Args:
            params: (T, 1, P), the model that the round started from.
            data: "batches", each client's first batch, or "full", all data of each client.
        """
        if data == "batches" and self._loss is not None and self._loss[0] is params:
            return self.mean(self._loss[1])
        return self.mean(self._oracle.value(params, self.data(data)))

    def data(self, data: str) -> Batch:
        """Each client's first batch ("batches"), or all data of each client ("full")."""
        return self._batches.full() if data == "full" else self._batches.batch(0, self.clients)

    def _sent(self, params: Tensor) -> int:
        """Models that go down so that the clients hold this one: 0 where the last broadcast of the round was it."""
        held, self._broadcast = self._broadcast, params
        return int(held is not params)

    def _count(self, down: int, up: int, gradients: NDArray[np.int64]) -> None:
        model_bytes = self._parameters * self._weights.element_size() * self.clients
        self._counters.add("exchanges", 1, self._alive)
        self._counters.add("bytes_down", down * model_bytes, self._alive)
        self._counters.add("bytes_up", up * model_bytes, self._alive)
        self._counters.add("client_gradients", gradients, self._alive)
