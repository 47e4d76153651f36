"""A pack: several trials of equal structure, trained together, round by round."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine import randomness
from trainers.engine.evaluation.views import ModelView, RoundView
from trainers.engine.memory import keep_freed_memory, owned
from trainers.engine.oracles.oracle import RoundBatches
from trainers.engine.packs import checkpoint
from trainers.engine.packs.build import (
    adapted_clients,
    build_model,
    central_data,
    client_weights,
    default_device,
    dtype_of,
    first_model,
    hyper_of,
    rate_of,
    rates_of,
    slots,
)
from trainers.engine.packs.lines import Metrics, lines, opening
from trainers.engine.packs.plan import Plan, evaluation_interval, fastest_oracle
from trainers.engine.packs.progress import Progress
from trainers.engine.rounds.client_states import ClientStore
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.role_optimizer import RoleOptimizer, first_memory
from trainers.engine.rounds.server_state import State
from trainers.errors import CheckpointError, SpecError
from trainers.registry import reports
from trainers.trial.document import TrialSpec
from trainers.values import shown


class Pack:
    """Trials of equal structure in one process on one device; made by `from_spec` or `restore`.

    A trial gives the same curve alone and in any pack (to rounding; to the bit under the same plan). A trial diverges
    when its training loss, the norm of its update or its model is not finite, or when its training loss rises above
    the first one by more than `explosion` of the model (1e3; 1e6 for quadratics) times max(1, |first loss|). It is
    reported once as diverged, then its lines end and it rests; the others go on as if nothing had happened.
    """

    def __init__(self, spec: TrialSpec, device: str, plan: Plan | None) -> None:
        keep_freed_memory()
        self.spec = spec
        self.device = default_device(device)
        name, self._model = build_model(spec, self.device)
        self._order = slots(spec)
        like = torch.empty(0, dtype=dtype_of(spec.dtype), device=self.device)
        rates = torch.empty(0, dtype=torch.float64)
        self._method = hyper_of(spec.method, self._order, (1, 1), like)
        self._schedule = hyper_of(spec.schedule, self._order, (), rates)
        self._source = self._model.source(spec.seed, spec.batch_size, spec.batching)
        self._clients_per_round = spec.clients_per_round or self._model.clients
        self._weights = client_weights(spec, self._model)
        self._reports = [reports()[name] for name in spec.report if name in reports()]
        self._monitor = spec.schedule.structural.get("monitor", "loss")

        params = first_model(spec, self._model).to(like).expand(spec.members, 1, -1).clone()
        optimizers = {
            role: RoleOptimizer(part.module, hyper_of(part, self._order, (1, 1), like))
            for role, part in spec.optimizers.items()
        }
        client = spec.optimizers.get("client")
        self._client_optimizer = None if client is None or client.name == "sgd" else optimizers["client"]
        client_lr, server_lr = rate_of(spec, "client_lr", self._order), rate_of(spec, "server_lr", self._order)
        method = spec.method.module
        state = State(
            params=params,
            optimizers=optimizers,
            optimizer_memory=first_memory(optimizers, params),
            server_lr=server_lr.to(like).view(-1, 1, 1),
            memory=method.init(self._method, params),
        )
        store = ClientStore(method.stored(self._method), self._model.clients, params, spec.method.name)
        self._now = Progress.start(state, spec.schedule.module.init(self._schedule, client_lr, server_lr), store)
        self.plan = self._decide(name) if plan is None else self._adopt(plan)
        self._oracle = self._model.oracles[self.plan.oracle]
        self._adapted = adapted_clients(spec, self.device, self.plan.oracle)
        self._central = central_data(spec, self.device, self.plan.oracle, self._clients_per_round)

    @staticmethod
    def from_spec(spec: TrialSpec, *, device: str = "auto", plan: Plan | None = None) -> Pack:
        """A pack that has done nothing yet.

        Args:
            spec: of one trial or several.
            device: "auto", "cpu", "cuda", ...
            plan: how to compute; None decides here.

        Raises:
            SpecError: what only the model can tell: a start of the wrong size, a plan with an unknown oracle.
        """
        return Pack(spec, device, plan)

    @staticmethod
    def restore(spec: TrialSpec, data: bytes, *, device: str = "auto") -> Pack:
        """The pack as it was when `to_bytes` was called; it continues as if it had never stopped.

        Args:
            spec: of the same trials; rounds, report and eval_every may differ (the stored plan evaluates).
            data: from `to_bytes`.
            device: "auto", "cpu", "cuda", ...

        Raises:
            CheckpointError: damaged, of another version, of other trials, or beyond the trial's rounds.
        """
        payload = checkpoint.from_bytes(data)
        if payload["fingerprint"] != checkpoint.fingerprint(spec.canonical):
            raise CheckpointError("the checkpoint must be of the same trials, got one of others: start from the spec")
        if payload["round"] > spec.rounds:
            raise CheckpointError(
                f"the checkpoint must be within the trial's {spec.rounds} rounds, got one of round {payload['round']}"
            )
        pack = Pack(spec, device, Plan.from_json(payload["plan"]))
        pack._now.load(payload)
        return pack

    @property
    def members(self) -> int:
        """Number of trials."""
        return self.spec.members

    @property
    def round(self) -> int:
        """Server updates done."""
        return self._now.round

    @property
    def rounds(self) -> int:
        """Server updates to do."""
        return self.spec.rounds

    @property
    def done(self) -> bool:
        """Whether nothing is left to report: all rounds done, or all trials diverged."""
        return self._now.opened and (self.round >= self.rounds or not self._now.alive.any())

    def advance(self, max_rounds: int | None = None, seconds: float | None = None) -> list[dict[str, Any]]:
        """Trains on, and returns one report line a round and trial; the first call begins with those of round 0.

        Args:
            max_rounds: server updates to do at most; None is no limit.
            seconds: time after which no further round is begun; None is no limit. One round is always done, however
                little time there is, so that every call comes nearer to the end.
        """
        return list(self._advance(max_rounds, seconds))

    def to_bytes(self) -> bytes:
        """Everything that `restore` needs."""
        head = {"fingerprint": checkpoint.fingerprint(self.spec.canonical), "plan": self.plan.to_json()}
        return checkpoint.to_bytes({**head, **self._now.payload()})

    def _advance(self, max_rounds: int | None, seconds: float | None) -> Iterator[dict[str, Any]]:
        begin, before, last = time.perf_counter(), self._now.wall_seconds, self.rounds
        first = self.round
        if max_rounds is not None:
            last = min(last, self.round + max_rounds)
        if not self._now.opened:
            self._now.opened = True
            yield from self._first_lines()
        while self.round < last and not self.done:
            if seconds is not None and self.round > first and time.perf_counter() - begin >= seconds:
                break
            reported = self._now.alive
            metrics = self._one_round()
            self._now.wall_seconds = before + time.perf_counter() - begin
            yield from self._lines(metrics, reported)

    def _one_round(self) -> Metrics:
        """Trains one round; the metrics of all trials."""
        now, spec = self._now, self.spec
        client_lr, server_lr = rates_of(spec, now.schedule)
        old = replace(now.state, server_lr=server_lr.to(now.state.params).view(-1, 1, 1))
        cohort = self._cohort()
        hyper = self._method_at(client_lr, server_lr)
        new = spec.method.module.train_round(hyper, old, cohort)
        if new.update_norm is None:
            raise RuntimeError(f"method {spec.method.name} must call state.step in every round, it did not")
        train_loss = cohort.loss(old.params, spec.loss_data)
        loss, norm, total = torch.stack([train_loss, new.update_norm, new.params.sum((1, 2))]).double().cpu()
        metrics = {"train_loss": loss, "update_norm": norm, "client_lr": client_lr, "server_lr": server_lr}
        if (now.round + 1) % self.plan.eval_every == 0 or now.round + 1 == self.rounds:
            metrics.update(self._evaluated(new.params, client_lr))
        view = RoundView(old, new, hyper, cohort, spec.loss_data, self._model)
        for report in self._reports:
            metrics.update(report.of_round(view))
        if "params" in spec.report:
            metrics["params"] = self._model.layout.vector(new.params[:, 0])

        schedule = spec.schedule.module.update(self._schedule, now.schedule, self._monitored(loss, old.params, cohort))
        exploded = now.exploded(loss.numpy(), (norm + total).numpy(), self._model.explosion)
        now.move(new, schedule, now.alive & ~exploded, cohort.numbers)
        return metrics

    def _evaluated(self, params: Tensor, client_lr: Tensor) -> Metrics:
        """The metrics of an evaluation, with those that the trial asks for; client_lr (T,) is for adaptation."""
        metrics = self._model.evaluate(params, self.spec.report)
        view = ModelView(params, self._model, self._oracle, self._weights)
        for report in self._reports:
            metrics.update(report.of_model(view))
        if self._adapted is not None:
            metrics.update(self._adapted.evaluate(params, client_lr.to(params).view(-1, 1, 1)))
        return metrics

    def _monitored(self, loss: Tensor, params: Tensor, cohort: Cohort) -> Tensor:
        """(T,) what the schedule watches: the training loss, or the accuracy on the same data."""
        if self._monitor == "loss":
            return loss
        accuracy = self._model.accuracy(params, cohort.data(self.spec.loss_data))
        if accuracy is None:
            raise SpecError('schedule.monitor must be "loss": the model has no accuracy', "schedule.monitor")
        return cohort.mean(accuracy).double().cpu()

    def _cohort(self) -> Cohort:
        clients = randomness.cohort(self.spec.seed, self.round, self._model.clients, self._clients_per_round)
        batches = self._source.round(self.round, clients)
        weights = self._weights[batches.clients]
        total = weights.sum()
        weights = weights / total if total > 0 else weights  # clients of weight 0 alone change nothing
        held = owned(weights, self._now.state.params)
        now = self._now
        central = None if self._central is None else self._central.at(self.round, now.alive, now.counters)
        stored, count = now.clients.gather(batches.clients), self._model.layout.count
        share = float(total / self._weights.sum())
        sizes = self._model.examples
        each = 1.0 if sizes is None else float(self.spec.batch_size or sizes[batches.clients].mean())
        met = now.clients.met(batches.clients)
        return Cohort(
            self._oracle, batches, held, count, now.counters, now.alive, central, stored, share, each, met,
            self._client_optimizer,
        )  # fmt: skip

    def _method_at(self, client_lr: Tensor, server_lr: Tensor) -> Any:
        """The method's hyperparameters with the rates of the round."""
        rates = {"client_lr": client_lr, "server_lr": server_lr}
        like, values = self._now.state.params, self.spec.method.values
        own = {name: rate.to(like).view(-1, 1, 1) for name, rate in rates.items() if name in values}
        return replace(self._method, **own)

    def _first_lines(self) -> list[dict[str, Any]]:
        """The lines of round 0."""
        params = self._now.state.params
        client_lr, server_lr = rates_of(self.spec, self._now.schedule)
        metrics = opening(self._evaluated(params, client_lr), client_lr, server_lr)
        if "params" in self.spec.report:
            metrics["params"] = self._model.layout.vector(params[:, 0])
        return self._lines(metrics, self._now.alive)

    def _lines(self, metrics: Metrics, reported: NDArray[np.bool_]) -> list[dict[str, Any]]:
        now = self._now
        members = np.where(reported, self._order, -1)
        return lines(now.round, metrics, now.counters.reported, reported & ~now.alive, members, now.wall_seconds)

    def _decide(self, model_name: str) -> Plan:
        spec, every = self.spec, self.spec.eval_every
        oracle = fastest_oracle(model_name, self._model, self._typical, self._now.state.params, self._typical_steps())
        if not isinstance(every, int):
            model = self._model
            examples = model.test_examples
            if model.examples is not None:
                passes = sum(report.PASSES for report in self._reports)
                examples += int(passes * model.examples.sum())
            adapting = adapted_clients(spec, self.device, oracle)
            examples += 0 if adapting is None else adapting.examples
            every = evaluation_interval(examples, self._source.step_examples(self._clients_per_round), spec.rounds)
        return Plan(oracle, spec.members, torch.get_num_threads(), self.device.type, spec.dtype, every)

    def _typical(self) -> RoundBatches:
        """The batches of a round as training meets them: of a new cohort, unless all clients take part in each."""
        source = self._source
        if self._clients_per_round < self._model.clients:
            source = self._model.source(self.spec.seed, self.spec.batch_size, self.spec.batching)
        cohort = randomness.cohort(self.spec.seed, 0, self._model.clients, self._clients_per_round)
        return source.round(0, cohort)

    def _typical_steps(self) -> int | None:
        """The most local steps of any trial; None where only the method knows."""
        return max((count or 0 for count in self.spec.method.values.get("local_steps", ())), default=0) or None

    def _adopt(self, plan: Plan) -> Plan:
        """A given plan, forced; width, device and dtype are what they are."""
        if plan.oracle not in self._model.oracles:
            known = ", ".join(self._model.oracles)
            raise SpecError(f"the plan's oracle must be one of {known}, got oracle={shown(plan.oracle)}")
        if plan.threads != torch.get_num_threads():
            torch.set_num_threads(plan.threads)
        return replace(plan, width=self.spec.members, device=self.device.type, dtype=self.spec.dtype)
