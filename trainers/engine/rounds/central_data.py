"""The server's own loss in a round: its gradients and its local steps, as if the server were a cohort of one client.

Central data are a separate problem with a single client and the same model. Their batches follow from (seed, round,
step) and are independent of the clients' batches. Only gradients are counted: the server sends nothing to itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine import randomness
from trainers.engine.local.loop import run_local_steps
from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import Local, LocalWork
from trainers.engine.oracles.oracle import Model, Oracle, RoundBatches, Source
from trainers.engine.rounds.counters import Counters
from trainers.engine.rounds.server_state import State

_SERVER = np.zeros(1, np.int64)


class CentralData:
    """The server's data of a whole trial.

    Args:
        model: the model with the server as its only client.
        oracle: name of the clients' oracle.
        seed: seed of the trial.
        batching: how batches are drawn; every round begins a new pass, also with "epochs".
        batch_size: examples per central step, unless the method sets it; None is all data of the server.
        example_cost: operations of the gradient of one of its examples divided by those of a client's example.
    """

    def __init__(
        self,
        model: Model,
        oracle: str,
        seed: int,
        batching: str,
        batch_size: int | None,
        example_cost: float = 1.0,
    ) -> None:
        self.example_cost = example_cost
        self._model = model
        self._oracle = oracle
        self._seed = randomness.key(seed, 0, randomness.Purpose.CENTRAL)
        self._batching = batching
        self._batch_size = batch_size
        self._sources: dict[int | None, Source] = {}

    def at(self, round_index: int, alive: NDArray[np.bool_], counters: Counters | None = None) -> Central:
        """The server's loss in one round.

        Args:
            round_index: from 0.
            alive: (T,) True for trials that have not diverged.
            counters: updated in place; None counts nothing.
        """
        return Central(self, round_index, alive, counters or Counters.zero(len(alive)))

    def batches(self, round_index: int, batch_size: int | None) -> RoundBatches:
        """The batches of a round.

        Args:
            round_index: from 0.
            batch_size: examples of each; None is the size given to the constructor.
        """
        size = batch_size or self._batch_size
        if size not in self._sources:
            self._sources[size] = self._model.source(self._seed, size, self._batching)
        return self._sources[size].round(round_index, _SERVER)

    @property
    def countable(self) -> bool:
        """Whether the server's loss is over examples; False for a formula that needs no data."""
        return self._model.examples is not None

    @property
    def oracle(self) -> Oracle:
        """The clients' oracle."""
        return self._model.oracles[self._oracle]


class Central:
    """The server's own loss in one round, for all trials of a pack.

    Args:
        data: the server's data of the trial.
        round_index: from 0.
        alive: (T,) True for trials that have not diverged.
        counters: updated in place.
    """

    def __init__(self, data: CentralData, round_index: int, alive: NDArray[np.bool_], counters: Counters) -> None:
        self._data = data
        self._round_index = round_index
        self.alive = alive
        self._counters = counters

    def local(self, params: Tensor, work: LocalWork, batch_size: int | None = None) -> Local:
        """Local steps on the server's data; the result has one client, (T, 1, P).

        Args:
            params: (T, 1, P) initial models.
            work: a plan with central_lr as client_lr and central_steps as local_steps, and further terms.
            batch_size: examples per step; None is clients_per_round times the clients' batch_size, or all data if
                that is None.
        """
        batches = self.batches(batch_size)
        done = run_local_steps(self.oracle, batches, params, work, self.alive)
        self._count(done.steps[:, 0], batch_size)
        return done

    def batches(self, batch_size: int | None = None) -> RoundBatches:
        """The server's batches of the round.

        Args:
            batch_size: examples of each, as in `local`.
        """
        return self._data.batches(self._round_index, batch_size)

    @property
    def example_cost(self) -> float:
        """As in `CentralData`."""
        return self._data.example_cost

    @property
    def oracle(self) -> Oracle:
        """The oracle of the server's loss."""
        return self._data.oracle

    def peek(self, params: Tensor, loss_weight: Tensor, data: str) -> Tensor:
        """The gradient of the server's weighted loss, (T, 1, P), for a report.

        Args:
            params: (T, 1, P).
            loss_weight: (T, 1, 1) multiplies the loss.
            data: "batches", the batch of the first step, or "full", all data.
        """
        batches = self.batches()
        batch = batches.full() if data == "full" else batches.batch(0, 1)
        return loss_weight * self.oracle.value_and_grad(params, batch)[1]

    def bytes_of(self, batches: RoundBatches, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes of the examples in the batches of the first `steps` steps, as held in memory; full batches count once.

        Args:
            batches: batches of the round.
            steps: numbers of steps, of any shape; the result has the same shape.
        """
        if not self._data.countable:
            return np.zeros_like(steps)
        batch_bytes = sum(tensor.nbytes for group in batches.batch(0, 1) for tensor in group.data.values())
        return batch_bytes * (np.minimum(steps, 1) if batches.always_full else steps)

    def _count(self, gradients: NDArray[np.int64], batch_size: int | None) -> None:
        """Counts the gradients (T,) on the first batches of the round."""
        examples = self.batches(batch_size).examples(gradients[:, None])[:, 0]
        self._counters.add("central_gradients", gradients, self.alive)
        self._counters.add("central_examples", examples, self.alive)

    def step_gradient(
        self,
        params: Tensor,
        step: int,
        loss_weight: Tensor,
        batch_size: int | None = None,
        taking: NDArray[np.bool_] | None = None,
    ) -> Tensor:
        """The gradient of the server's weighted loss on the batch of one step, (T, 1, P).

        Args:
            params: (T, 1, P).
            step: step of the round, from 0.
            loss_weight: (T, 1, 1) multiplies the loss.
            batch_size: examples of a batch, as in `local`.
            taking: (T,) True for trials that take this step; None is all.
        """
        batches = self.batches(batch_size)
        batches.prepare(step + 1)
        self._count(np.ones(len(self.alive), np.int64) if taking is None else taking.astype(np.int64), batch_size)
        return loss_weight * self.oracle.value_and_grad(params, batches.batch(step, 1))[1]

    def gradient(
        self,
        params: Tensor,
        loss_weight: Tensor | None = None,
        batch_size: int | None = None,
        batches: Tensor | None = None,
    ) -> Tensor:
        """The gradient of the server's loss at a model, (T, 1, P).

        Args:
            params: (T, 1, P).
            loss_weight: (T, 1, 1) multiplies the loss; None is 1.
            batch_size: examples of a batch, as in `local`.
            batches: (T, 1, 1) integers: the gradient is averaged over the batches of this many first steps; None is 1.
        """
        once = torch.ones((params.shape[0], 1, 1), dtype=torch.int64)
        steps = once if batches is None or self.batches(batch_size).always_full else batches
        work = LocalWork(StepPlan(params.new_zeros((params.shape[0], 1, 1)), steps), gradient_scale=loss_weight)
        return self.local(params, work, batch_size).pseudo_gradient / steps.to(params)


def merged(before: State, federated: State, central_delta: Tensor, merge_lr: Tensor) -> State:
    """The state after the server's step and the merge of the central branch: x + merge_lr (federated + central change).

    Args:
        before: state before the round.
        federated: state after the server optimizer's step.
        central_delta: (T, 1, P) change of the model by the central branch.
        merge_lr: (T, 1, 1).
    """
    federated_delta = federated.params - before.params
    params = federated.params + (merge_lr - 1) * federated_delta + merge_lr * central_delta
    return replace(federated, params=params)
