"""The cohort of a round, as a method sees it: runs the clients, takes means, counts communication and gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.batches.with_central import JOINED_COST, JoinedRound
from trainers.engine.local.client_drift import Again, drift
from trainers.engine.local.client_optimizer import clipped_
from trainers.engine.local.gradients import with_central
from trainers.engine.local.loop import run_local_steps
from trainers.engine.local.meta_gradients import PRODUCT_COST, run_meta_gradients
from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import Local, LocalWork
from trainers.engine.oracles.oracle import Batch, LocalGradients, RoundBatches, weighted_mean
from trainers.engine.rounds.central_data import Central
from trainers.engine.rounds.client_memory import CohortMemory
from trainers.engine.rounds.counters import JOINED
from trainers.engine.rounds.fragments import Exchange
from trainers.engine.rounds.round_context import RoundContext
from trainers.engine.rounds.upload import Upload

CLIENT = "client"
"""Role of the clients' optimizer, and owner of its client memory (engine/rounds/client_memory.py)."""


class Cohort:
    """The clients of one round, for all trials of a pack.

    Args:
        context: the round.

    Attributes:
        stored: what these clients keep for the method, (T, M, P) each; initially 0.
        kept: what the clients keep after the round for their optimizer, quantised uploads and other fragments, by
            dotted name.
        share: the cohort's share of the weights of all clients, or (T, 1, 1) of them; 1 if all take part.
        optimizer: optimizer of the clients' steps; None is gradient descent.
        counters: communication and computation of the pack so far, this round included.
    """

    def __init__(self, context: RoundContext) -> None:
        self._context = context
        self._oracle, self._batches, self._alive = context.oracle, context.draw.batches, context.alive
        self._weights = context.draw.weights
        memory = context.memory or CohortMemory({}, np.zeros((self.clients, 1), bool))
        self.stored, self._met = memory.of(), memory.met
        self._optimizer_memory: Mapping[str, Tensor] | None = memory.of(CLIENT) or None
        self._upload = Upload(context.quantiser, context.exchange, memory)
        self.kept: dict[str, Tensor] = {}
        self.share = context.draw.share
        self.optimizer, self.counters = context.optimizer, context.counters
        self._loss: tuple[Tensor, Tensor] | None = None
        self._broadcast: Tensor | None = None
        self._worked: tuple[Again, Tensor, LocalWork] | None = None

    @property
    def clients(self) -> int:
        """M, the number of clients."""
        return len(self._batches.clients)

    def own(self, values: Tensor) -> Tensor:
        """The values of the cohort's clients, (T, M, 1), among those of all clients of the population, (T, clients)."""
        clients = torch.as_tensor(self._batches.clients, device=values.device)
        return (values[:, clients] if clients.dim() == 1 else values.gather(1, clients.T)).unsqueeze(-1)

    @property
    def relative_weights(self) -> Tensor:
        """(1 or T, M, 1) weights of the clients times M: all 1 if clients have equal weights."""
        return (self.clients * self._weights).view(-1, self.clients, 1)

    @property
    def exchange(self) -> Exchange | None:
        """The fragment of the model that the round exchanges; None is all of it."""
        return self._context.exchange

    @property
    def met(self) -> Tensor:
        """(1 or T, M, 1) True for clients that stored something before: a stored 0 is a value, not a blank."""
        return torch.as_tensor(self._met, device=self._weights.device).T.unsqueeze(-1)

    @property
    def relative_rates(self) -> Tensor | None:
        """(T, K) rates of the local steps divided by client_lr, from the schedule; None is 1 throughout."""
        return self._context.relative_rates

    def with_rates(self, plan: StepPlan) -> StepPlan:
        """The plan of the clients' local steps at the rates that the schedule gives these steps."""
        rates = self.relative_rates
        return plan if rates is None else plan.at(rates)

    @property
    def central(self) -> Central:
        """The server's own loss; RuntimeError unless the method sets CENTRAL = True."""
        if self._context.central is None:
            raise RuntimeError("a method must set CENTRAL = True to use central data")
        return self._context.central

    @property
    def example_cost(self) -> float:
        """Operations of the gradient of one of the server's examples divided by those of a client's example."""
        return 1.0 if self._context.central is None else self._context.central.example_cost

    def local(self, params: Tensor, work: LocalWork, down: Sequence[Tensor] = (), up: int = 1) -> Local:
        """Broadcasts, lets every client work, and collects: one exchange.

        Args:
            params: (T, 1, P), broadcast unless the clients hold it from the round's last exchange.
            work: what the clients do, at the rates of the schedule; with the trial's client optimizer unless it has
                another.
            down: further model-sized tensors that are broadcast with it.
            up: model-sized tensors that every client returns.
        """
        work = self._completed(work)
        if self._upload.unsent is not None:  # clients go on from their own models
            work = replace(work, displacement=-work.plan.client_lr * self._upload.unsent)
        done = self._work(self._oracle, self._batches, params, work)
        if work.displacement is None and work.evaluation_offset is None:
            self._loss = (params, done.first_loss)
        self._count(self._sent(params) + len(down), up, done.steps, work.gradients_per_step, plan=work.plan)
        return self._uploaded(done)

    def meta_gradients(self, params: Tensor, work: LocalWork, unbiased: bool = False) -> Local:
        """Every client's gradient, through all its local steps, of its loss after local training: one exchange.

        Args:
            params: (T, 1, P), broadcast.
            work: plan with local_steps, prox and weight_decay.
            unbiased: independent batches for Hessians and gradients (engine/local/meta_gradients.py).
        """
        work = self._completed(work)
        done = run_meta_gradients(self._oracle, self._batches, params, work, self._alive, unbiased)
        self._loss = (params, done.first_loss)
        first = self._batches.examples(np.ones(self.clients, np.int64))
        self._count(self._sent(params), 1, done.steps, examples=done.steps * first)
        return self._uploaded(done)

    def gradients(
        self,
        params: Tensor,
        *,
        weight_decay: Tensor | None = None,
        clip_norm: Tensor | None = None,
        full: bool = False,
        batches: Tensor | None = None,
        displacement: Tensor | None = None,
        down: Sequence[Tensor] = (),
    ) -> Tensor:
        """Every client's gradient at the broadcast model, or at a displaced one, (T, M, P): one exchange.

        Args:
            params: (T, 1, P), broadcast unless the clients hold it from the round's last exchange.
            weight_decay: (T, 1, 1) L2 coefficient of the loss; None is no decay.
            clip_norm: (T, 1, 1) largest L2 norm of a gradient; None is no clipping.
            full: use all data of the client, which counts as the mini-batches of one pass; otherwise its first batch.
            batches: (T, 1, 1) integers: the sum of the gradients on this many first batches; None is 1.
            displacement: (T, M, P) added to the model by every client; None is 0.
            down: further model-sized tensors that are broadcast with it.
        """
        if full:
            at = params if displacement is None else params + displacement
            gradients = self._decayed(self._oracle.value_and_grad(at, self._batches.full())[1], weight_decay, at)
            gradients = gradients if clip_norm is None else clipped_(gradients, clip_norm)
            counted, examples = self._once(full)
            self._count(self._sent(params) + len(down), 1, counted, examples=examples)
            return self._received(gradients)
        # local steps with rate 0 do not move the model, and each trial has its own number of batches
        zero_rate = params.new_zeros((params.shape[0], 1, 1))
        count = torch.ones((params.shape[0], 1, 1), dtype=torch.int64) if batches is None else batches
        decay = None if self._decoupled else weight_decay
        plan = StepPlan(zero_rate, count)
        work = LocalWork(plan, displacement=displacement, weight_decay=decay, clip_norm=clip_norm)
        done = self._work(self._oracle, self._batches, params, work)
        if displacement is None:
            self._loss = (params, done.first_loss)
        self._count(self._sent(params) + len(down), 1, done.steps)
        return self._received(done.pseudo_gradient)

    def step_gradients(self, params: Tensor, step: int, taking: NDArray[np.bool_]) -> Tensor:
        """Every client's gradient on its batch of one step, (T, M, P): one exchange.

        Args:
            params: (T, 1, P), broadcast.
            step: step of the round, from 0.
            taking: (T,) trials that take part in it; the others send and count nothing.
        """
        self._batches.prepare(step + 1)
        loss, gradients = self._oracle.value_and_grad(params, self._batches.batch(step, self.clients))
        if step == 0:
            self._loss = (params, loss)
        upto = np.full((len(self._alive), self.clients), step)
        examples = self._batches.examples(upto + 1) - self._batches.examples(upto)
        self._count(self._sent(params), 1, np.ones_like(upto), examples=examples, taking=taking)
        return gradients

    def joined(self, params: Tensor, work: LocalWork, weights: tuple[Tensor, Tensor], batch_size: int | None) -> Local:
        """Local work on the sum of the client's and the server's loss: one exchange, the server's examples included.

        Args:
            params: (T, 1, P), broadcast.
            work: what the clients do.
            weights: (T, 1, 1) weights of the clients' losses and of the server's loss.
            batch_size: the server's examples per step, as in Central.local.
        """
        shared = self.central.batches(batch_size)
        work = self._completed(work)
        if work.weight_decay is not None and not work.decoupled:
            work = replace(work, weight_decay=weights[0] * work.weight_decay)  # a part of the clients' losses
        gradients = with_central(self._oracle, self.central.oracle, *weights)
        joined = JoinedRound(self._batches, shared)
        done = self._work(gradients, joined, params, work)
        self._loss = (params, done.first_loss)
        # a step takes a gradient on each of two batches
        examples, of_server = joined.examples(done.steps), shared.examples(done.steps)
        self._count(self._sent(params), 1, JOINED_COST * done.steps, examples=examples, of_server=of_server)
        self.counters.add("bytes_down", self.central.bytes_of(shared, done.steps).sum(1), self._alive)
        return self._uploaded(done)

    def own_gradients(self, params: Tensor, *, weight_decay: Tensor | None = None, full: bool = False) -> Tensor:
        """Every client's gradient at the broadcast model, (T, M, P). The client keeps it, so there is no exchange.

        Args:
            params: (T, 1, P), broadcast in another exchange of the round.
            weight_decay: as in `gradients`.
            full: as in `gradients`.
        """
        self._evaluated(*self._once(full), self._alive)
        return self._decayed(self.peek(params, "full" if full else "batches"), weight_decay, params)

    def products(self, params: Tensor, vectors: Tensor, full: bool = False, down: Sequence[Tensor] = ()) -> Tensor:
        """Every client's Hessian at the broadcast model times the client's own vector, (T, M, P): one exchange.

        Args:
            params: (T, 1, P), broadcast unless the clients hold it from the round's last exchange.
            vectors: (T, M, P), computed by each client from what it holds and receives.
            full: as in `gradients`; a product counts as two gradients.
            down: further model-sized tensors that are broadcast with it.
        """
        products = self._oracle.hvp(params, self.data("full" if full else "batches"), vectors)
        self._worked = None  # a round of products has no local loop and hence no drift
        counted, examples = self._once(full)
        self._count(self._sent(params) + len(down), 1, PRODUCT_COST * counted, examples=PRODUCT_COST * examples)
        return products

    def mean(self, values: Tensor | Local) -> Tensor:
        """The weighted mean over the cohort, with the weights of training.

        Args:
            values: (T, M, P), or (T, M), or the result of local work, for its pseudo-gradients.

        Returns:
            (T, 1, P), or (T,).
        """
        if isinstance(values, Local):
            return values.mean(self._weights)
        return weighted_mean(values, self._weights)

    def measured_mean(self, values: Tensor) -> Tensor:
        """The weighted mean over the cohort for metrics and reports, with the study's weights, not those of training.

        Args:
            values: (T, M, P), or (T, M).

        Returns:
            (T, 1, P), or (T,).
        """
        return weighted_mean(values, self._context.draw.measured)

    def loss(self, params: Tensor, data: str) -> Tensor:
        """The mean loss of the broadcast model before local work, (T,). Counts nothing.

        Args:
            params: (T, 1, P) model at the start of the round.
            data: "batches", each client's first batch, or "full", all data of each client.
        """
        if data == "batches" and self._loss is not None and self._loss[0] is params:
            return self.measured_mean(self._loss[1])
        return self.measured_mean(self._oracle.value(params, self.data(data)))

    def peek(self, params: Tensor, data: str) -> Tensor:
        """Every client's gradient, (T, M, P), for a report. Sends nothing and counts nothing.

        Args:
            params: (T, 1, P).
            data: as in `loss`.
        """
        return self._oracle.value_and_grad(params, self.data(data))[1]

    def drift(self) -> Tensor | None:
        """(T, M) mean squared distance of each client's models from the broadcast one, for a report.

        Runs the last local loop of the round again, without counting. None if the round had no local loop.
        """
        return None if self._worked is None else drift(*self._worked)

    def worked(self) -> tuple[NDArray[np.int64], RoundBatches] | None:
        """The steps (T, M) of each client in the round's last local loop, and its batches; None without such a loop."""
        return None if self._worked is None else (self._worked[2].plan.steps(self._batches), self._batches)

    def data(self, data: str) -> Batch:
        """Each client's first batch ("batches"), or all data of each client ("full")."""
        return self._batches.full() if data == "full" else self._batches.batch(0, self.clients)

    @property
    def _decoupled(self) -> bool:
        """Whether weight decay is added to the directions instead of the clients' gradients."""
        return self.optimizer is not None and self.optimizer.decoupled

    def _decayed(self, gradients: Tensor, weight_decay: Tensor | None, params: Tensor) -> Tensor:
        return gradients if weight_decay is None or self._decoupled else gradients + weight_decay * params

    def _completed(self, work: LocalWork) -> LocalWork:
        """The work with the schedule's rates and the trial's client optimizer, which continues if clients keep it."""
        plan = self.with_rates(work.plan)
        if self.optimizer is None or work.optimizer is not None:
            return work if plan is work.plan else replace(work, plan=plan)
        return replace(work, plan=plan, optimizer=self.optimizer, optimizer_memory=self._optimizer_memory)

    def _work(self, gradients: LocalGradients, batches: RoundBatches, params: Tensor, work: LocalWork) -> Local:
        """Runs the local loop, and remembers how to run it again for a report."""
        again = partial(run_local_steps, gradients, batches, params, alive=self._alive)
        self._worked = (again, params, work)
        done: Local = again(work)
        if done.optimizer_memory is not None:
            self._optimizer_memory = done.optimizer_memory
            self.kept |= {f"{CLIENT}.{name}": tensor for name, tensor in done.optimizer_memory.items()}
        return done

    def _uploaded(self, done: Local) -> Local:
        """The local work as the server receives it."""
        if self._upload.exact:
            return done
        sent = self._received(done.pseudo_gradient)
        return replace(done, lift=lambda: sent, average=None)

    def _received(self, values: Tensor) -> Tensor:
        """What the server receives of the clients' results (T, M, P); to be called once a round."""
        sent = self._upload.received(values)
        self.kept |= self._upload.kept
        return sent

    def _sent(self, params: Tensor) -> int:
        """Number of models to broadcast so that the clients hold `params`: 0 if it was the round's last broadcast."""
        previous, self._broadcast = self._broadcast, params
        return int(previous is not params)

    def _once(self, full: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(T, M) mini-batch gradients and examples of a gradient on all data of each client, or on its first batch."""
        shape = len(self._alive), self.clients
        ones = np.ones(shape, np.int64)
        if not full:
            return ones, self._batches.examples(ones)
        return ones * self._batches.full_gradients, ones * self._batches.full_examples

    def _evaluated(
        self,
        gradients: NDArray[np.int64],
        examples: NDArray[np.int64],
        among: NDArray[np.bool_],
        of_server: NDArray[np.int64] | None = None,
    ) -> None:
        """Counts mini-batch gradients (T, M), their examples (T, M), and those of them that are the server's."""
        self.counters.add("client_gradients", gradients.sum(1), among)
        self.counters.add("client_examples", examples.sum(1), among)
        if of_server is not None:
            self.counters.add(JOINED, of_server.sum(1), among)
            examples = examples + np.rint((self.example_cost - 1) * of_server).astype(np.int64)
        self.counters.add("slowest_examples", examples.max(1), among)

    def _count(
        self,
        down: int,
        up: int,
        steps: NDArray[np.int64],
        gradients_per_step: int = 1,
        examples: NDArray[np.int64] | None = None,
        taking: NDArray[np.bool_] | None = None,
        plan: StepPlan | None = None,
        of_server: NDArray[np.int64] | None = None,
    ) -> None:
        """Counts an exchange. Clients that the round drops receive and compute, and send nothing.

        Args:
            down: models that every client receives.
            up: models that every client sends.
            steps: (T, M) mini-batch gradients of each client.
            gradients_per_step: gradients that count for each of them, on the same batch.
            examples: (T, M) examples of the gradients; None is those of the round's first batches.
            taking: (T,) trials that take part; None is all that are alive.
            plan: plan of the local steps, of which dropped clients take a part.
            of_server: (T, M) examples that are the server's; None is none.
        """
        dropped = self._context.draw.dropped
        among = self._alive if taking is None else self._alive & taking
        numbers, width, exchange = self._context.parameters, self._weights.element_size(), self._context.exchange
        received = numbers if exchange is None else exchange.down
        upload = self._upload.bytes_of(numbers, width)
        self.counters.add("exchanges", 1, among)
        receiving = self.clients + (0 if dropped is None else len(dropped.clients))
        self.counters.add("bytes_down", down * received * width * receiving, among)
        self.counters.add("bytes_up", up * upload * self.clients, among)
        examples = gradients_per_step * self._batches.examples(steps) if examples is None else examples
        gradients = gradients_per_step * steps
        if dropped is not None and plan is not None:
            lost = plan.steps(dropped)
            gradients = np.concatenate([gradients, gradients_per_step * lost], 1)
            examples = np.concatenate([examples, gradients_per_step * dropped.examples(lost)], 1)
        self._evaluated(gradients, examples, among, of_server)
