"""The cohort of a round, as a method sees it: runs the clients, takes means, counts what is exchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.batches.with_central import JOINED_COST, Joined, JoinedRound
from trainers.engine.local.anchored import ANCHORED_COST, Anchored
from trainers.engine.local.client_optimizer import ClientOptimizer
from trainers.engine.local.drift import Again, drift
from trainers.engine.local.loop import Local, LocalWork, run_local_steps
from trainers.engine.local.meta_gradients import PRODUCT_COST, run_meta_gradients
from trainers.engine.local.shifted import Shifted
from trainers.engine.oracles.oracle import Batch, Oracle, RoundBatches
from trainers.engine.rounds.central_data import Central, weighted
from trainers.engine.rounds.counters import Counters


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
        stored: what these clients have kept from the rounds they took part in, (T, M, P) each; 0 at first.
        share: of the cohort in the weights of all clients, 1 for all of them.
        examples: mean number of examples of a client's mini-batch.
        met: (M,) whether they have kept anything yet; None is nobody.
        optimizer: with which the clients step; None is gradient descent.
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
        stored: Mapping[str, Tensor] | None = None,
        share: float = 1.0,
        examples: float = 1.0,
        met: NDArray[np.bool_] | None = None,
        optimizer: ClientOptimizer | None = None,
    ) -> None:
        self._oracle = oracle
        self._batches = batches
        self._weights = weights
        self._parameters = parameters
        self._counters = counters
        self._alive = alive
        self._central = central
        self.optimizer = optimizer
        self.stored = {} if stored is None else stored
        self.share = share
        self._examples = examples
        self._met = np.zeros(len(batches.clients), bool) if met is None else met
        self._loss: tuple[Tensor, Tensor] | None = None
        self._broadcast: Tensor | None = None
        self._worked: tuple[Again, Tensor, LocalWork] | None = None

    @property
    def decoupled(self) -> bool:
        """Whether weight decay is beside the clients' gradients and no part of them."""
        return self.optimizer is not None and self.optimizer.decoupled

    @property
    def clients(self) -> int:
        """M."""
        return len(self._batches.clients)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """(M,) numbers of the clients within the population, in the order of all that is (T, M, P)."""
        return self._batches.clients

    @property
    def met(self) -> Tensor:
        """(1, M, 1) whether these clients have kept anything yet; a 0 in `stored` may be kept as any other number."""
        return torch.as_tensor(self._met, device=self._weights.device).view(1, -1, 1)

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
        anchor: Tensor | None = None,
    ) -> Local:
        """Broadcasts, lets every client work, and collects: one exchange.

        Args:
            params: (T, 1, P), broadcast, unless the clients hold it from the round's last exchange.
            work: what the clients do.
            down: further model-sized tensors that are broadcast with it.
            up: model-sized tensors that every client returns.
            gradients_at: (T, M, P) added to a client's model wherever its loss is differentiated; None is 0.
            loss_weight: (T, 1, 1) multiplies the losses; None is 1.
            anchor: (T, 1, P) a model whose gradients on the same batches are subtracted from the local ones, which
                then count twice; None is none.
        """
        oracle = self._oracle if gradients_at is None else Shifted(self._oracle, gradients_at)
        oracle = oracle if anchor is None else Anchored(oracle, anchor)
        done = weighted(oracle, self._batches, params, work, self._alive, loss_weight)
        self._worked = (
            lambda wrap, work: weighted(wrap(oracle), self._batches, params, work, self._alive, loss_weight),
            params,
            work,
        )
        if work.displacement is None and gradients_at is None:
            self._loss = (params, done.first_loss)
        cost = 1 if anchor is None else ANCHORED_COST
        self._count(self._sent(params) + len(down), up, cost * done.steps.sum(1))
        return done

    def meta_gradients(self, params: Tensor, work: LocalWork, unbiased: bool = False) -> Local:
        """Every client's gradient of its loss after local training, through all its steps: one exchange.

        Args:
            params: (T, 1, P), broadcast.
            work: client_lr, local_steps, prox and weight_decay.
            unbiased: independent batches for Hessians and gradients (engine/local/meta_gradients.py).
        """
        done = run_meta_gradients(self._oracle, self._batches, params, work, self._alive, unbiased)
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
        self._count(self._sent(params), 1, self._passes(full))
        return gradients

    def step_gradients(self, params: Tensor, step: int, taking: NDArray[np.bool_]) -> Tensor:
        """Every client's gradient on its batch of one step, (T, M, P): one exchange.

        Args:
            params: (T, 1, P), broadcast.
            step: of the round, from 0.
            taking: (T,) trials that take part in it; the others send and count nothing.
        """
        self._batches.prepare(step + 1)
        loss, gradients = self._oracle.value_and_grad(params, self._batches.batch(step, self.clients))
        if step == 0:
            self._loss = (params, loss)
        self._count(self._sent(params), 1, np.full(len(taking), self.clients, np.int64), taking)
        return gradients

    def joined(self, params: Tensor, work: LocalWork, weights: tuple[Tensor, Tensor], batch_size: int | None) -> Local:
        """Local work on the clients' and the server's losses at once: one exchange, the server's examples included.

        Args:
            params: (T, 1, P), broadcast.
            work: what the clients do.
            weights: (T, 1, 1) of the clients' losses, and of the server's.
            batch_size: examples of the server in a step, as in Central.local.
        """
        shared = self.central.batches(batch_size)
        oracle = Joined(self._oracle, self.central.oracle(shared), *weights)
        batches = JoinedRound(self._batches, shared)
        done = run_local_steps(oracle, batches, params, work, self._alive)
        self._worked = (
            lambda wrap, work: run_local_steps(wrap(oracle), batches, params, work, self._alive),
            params,
            work,
        )
        self._loss = (params, done.first_loss)
        steps = done.steps.sum(1)
        self._count(self._sent(params), 1, JOINED_COST * steps)
        # half of these gradients are on the server's batch
        other = np.rint(steps * (self.central.examples(batch_size) - self._examples)).astype(np.int64)
        self._counters.add("client_examples", other, self._alive)
        self._counters.add("bytes_down", self.central.bytes_of(shared, done.steps).sum(1), self._alive)
        return done

    def own_gradients(self, params: Tensor, full: bool = False) -> Tensor:
        """Every client's gradient at the broadcast model, (T, M, P), which stays with the client: no exchange.

        Args:
            params: (T, 1, P), broadcast in the exchange to which it belongs.
            full: as in `gradients`.
        """
        self._spend(self._passes(full))
        return self.peek(params, "full" if full else "batches")

    def products(self, params: Tensor, vectors: Tensor, full: bool = False, down: Sequence[Tensor] = ()) -> Tensor:
        """Every client's Hessian at the broadcast model times a vector of its own, (T, M, P): one exchange.

        Args:
            params: (T, 1, P), broadcast, unless the clients hold it from the round's last exchange.
            vectors: (T, M, P), which each client makes of what it holds and receives.
            full: as in `gradients`; a product counts as two gradients.
            down: further model-sized tensors that are broadcast with it.
        """
        found = self._oracle.hvp(params, self.data("full" if full else "batches"), vectors)
        self._count(self._sent(params) + len(down), 1, PRODUCT_COST * self._passes(full))
        return found

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

    def peek(self, params: Tensor, data: str) -> Tensor:
        """Every client's gradient, (T, M, P), for a report: nothing is sent and nothing counted.

        Args:
            params: (T, 1, P).
            data: as in `loss`.
        """
        return self._oracle.value_and_grad(params, self.data(data))[1]

    @property
    def counters(self) -> Counters:
        """What the pack has used, this round included."""
        return self._counters

    def drift(self) -> Tensor | None:
        """(T, M) mean squared distance of each client's models from the broadcast one, for a report.

        Of the last local loop of the round, which is run once more, counting nothing; None where there was none.
        """
        return None if self._worked is None else drift(*self._worked)

    def data(self, data: str) -> Batch:
        """Each client's first batch ("batches"), or all data of each client ("full")."""
        return self._batches.full() if data == "full" else self._batches.batch(0, self.clients)

    def _sent(self, params: Tensor) -> int:
        """Models that go down so that the clients hold this one: 0 where the last broadcast of the round was it."""
        held, self._broadcast = self._broadcast, params
        return int(held is not params)

    def _passes(self, full: bool) -> NDArray[np.int64]:
        """(T,) mini-batch gradients in one gradient of every client: on its first batch, or on all its data."""
        each = int(self._batches.epoch_steps(1).sum()) if full else self.clients
        return np.full(len(self._alive), each, np.int64)

    def _spend(self, gradients: NDArray[np.int64]) -> None:
        self._evaluated(gradients, self._alive)

    def _evaluated(self, gradients: NDArray[np.int64], among: NDArray[np.bool_]) -> None:
        self._counters.add("client_gradients", gradients, among)
        self._counters.add("client_examples", np.rint(gradients * self._examples).astype(np.int64), among)

    def _count(self, down: int, up: int, gradients: NDArray[np.int64], taking: NDArray[np.bool_] | None = None) -> None:
        among = self._alive if taking is None else self._alive & taking
        model_bytes = self._parameters * self._weights.element_size() * self.clients
        self._counters.add("exchanges", 1, among)
        self._counters.add("bytes_down", down * model_bytes, among)
        self._counters.add("bytes_up", up * model_bytes, among)
        self._evaluated(gradients, among)
