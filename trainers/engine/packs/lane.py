"""A lane: trials of a pack whose tensors are computed together, round by round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.contracts import Schedule
from trainers.engine.evaluation.views import ModelView, RoundView
from trainers.engine.local.work import LocalSteps
from trainers.engine.packs.build import RATES, given_rates, hyper_of, rates_of, settings_of
from trainers.engine.packs.lines import Metrics, lines, opening
from trainers.engine.packs.progress import Progress
from trainers.engine.packs.setting import PackSetting
from trainers.engine.products import products_in
from trainers.engine.rounds.client_memory import ClientMemory
from trainers.engine.rounds.cohort import CLIENT, Cohort
from trainers.engine.rounds.counters import SHARED
from trainers.engine.rounds.fragments import Fragments
from trainers.engine.rounds.quantised import QUANTISERS
from trainers.engine.rounds.role_optimizer import RoleOptimizer, first_memory
from trainers.engine.rounds.round_context import Draw, RoundContext
from trainers.engine.rounds.server_state import State
from trainers.engine.rounds.upload import RESIDUAL, UNSENT
from trainers.errors import SpecError
from trainers.trial.evaluation_rounds import is_evaluated
from trainers.trial.exchange import check_fragments
from trainers.trial.roles import PLAIN


class Lane:
    """Trials that are computed together in T slots, of which the last ones may be idle.

    An idle slot has the settings of a member and the initial model. It counts as diverged from the start: it is never
    trained, reported, counted or written to a checkpoint, and its clients store nothing.

    Args:
        setting: model, data and plan.
        order: (T,) index of the member in each slot; for idle slots, of the member that lends its settings.
        members: number of slots that are not idle; these come first.

    Attributes:
        now: progress of its trials.
        monitored: (T,) the value of the last round that the schedule monitors.
    """

    monitored: Tensor

    def __init__(self, setting: PackSetting, order: NDArray[np.int64], members: int) -> None:
        self.setting = setting
        self._order = order
        self._members = members
        spec, like = setting.spec, setting.like
        self.settings = settings_of(spec.method, order, (1, 1), like)
        self._schedule = hyper_of(spec.schedule, order, (), torch.empty(0, dtype=torch.float64))
        self._rated: tuple[dict[str, Tensor], Tensor, Tensor, Any] | None = None
        schedule = spec.schedule.module.init(self._schedule, *given_rates(spec, order))
        client_lr, server_lr = rates_of(spec, schedule)
        params = setting.first_models(len(order))
        optimizers = {
            role: RoleOptimizer(part.module, hyper_of(part, order, (1, 1), like), setting.matrices_for(part.module))
            for role, part in spec.optimizers.items()
        }
        client = spec.optimizers.get(CLIENT)
        self._client_optimizer = None if client is None or client.name == PLAIN else optimizers[CLIENT]
        method, hyper = spec.method.module, self._method_at(client_lr, server_lr)
        state = State(
            params=params,
            optimizers=optimizers,
            optimizer_memory=first_memory(optimizers, params),
            server_lr=server_lr.to(like).view(-1, 1, 1),
            memory=method.init(hyper, params),
        )
        owner = spec.method.name
        self._quantiser = QUANTISERS[spec.upload] if spec.upload else None
        names = [*method.stored(hyper)]
        if self._quantiser is not None and self._quantiser.feedback:
            owner += f" with upload {spec.upload}"
            names.append(RESIDUAL)
        self._fragments = None
        if spec.fragments is not None:
            layout = setting.model.layout
            check_fragments(spec.fragments, len(layout.entries))  # for models whose tensors are unknown without data
            self._fragments = Fragments.of(layout, spec.fragments)
            owner += f" with {spec.fragments} fragments"
            names.append(UNSENT)
        first = dict.fromkeys(names, params.new_zeros(()).expand(members, *params.shape[1:]))
        if client is not None and client.keeps:
            owner += f" with client {client.name}"
            begun = optimizers[CLIENT].rows(slice(members)).begin(params[:members])
            first |= {f"{CLIENT}.{name}": tensor for name, tensor in begun.items()}
        idle, lanes = len(order) - members, -(-spec.members // members)
        cohorts = members if setting.joined else 1
        memory = ClientMemory(first, setting.model.clients, owner, idle=idle, lanes=lanes, cohorts=cohorts)
        self.now = Progress.start(state, schedule, memory, np.arange(len(order)) < members)

    @property
    def members(self) -> NDArray[np.int64]:
        """Index of the member in each slot that is not idle."""
        return self._order[: self._members]

    def params(self) -> Tensor:
        """(members, P) the present models of the members."""
        return self.now.state.evaluated[: self._members, 0]

    @property
    def rates(self) -> tuple[float, float]:
        """(client_lr, server_lr) of the next round, of the first slot."""
        client_lr, server_lr = rates_of(self.setting.spec, self.now.schedule)
        return float(client_lr[0]), float(server_lr[0])

    def relative_rates(self, draw: Draw) -> Tensor | None:
        """(T, K) rates of the local steps of the next round divided by client_lr, as its schedule gives them, or None.

        Args:
            draw: clients and batches of the round.
        """
        hyper = self._hyper()[-1]
        if not self._rates_steps or not isinstance(hyper, LocalSteps):
            return None
        steps = hyper.step_plan.planned(draw.batches)
        schedule = self.setting.spec.schedule.module
        return schedule.relative_rates(self._schedule, self.now.schedule, torch.as_tensor(steps))

    @property
    def _rates_steps(self) -> bool:
        """Whether the schedule may set the rates of local steps."""
        return type(self.setting.spec.schedule.module).relative_rates is not Schedule.relative_rates

    @staticmethod
    def _first_rate(client_lr: Tensor, relative_rates: Tensor | None) -> Tensor:
        """(T,) rate of a round's first local step."""
        return client_lr if relative_rates is None else client_lr * relative_rates[:, 0].to(client_lr)

    def opening_rate(self) -> Metrics:
        """The client_lr of round 0, the one metric in which lanes that train together may differ then."""
        client_lr, _ = rates_of(self.setting.spec, self.now.schedule)
        relative = self.relative_rates(self.setting.draw(0)) if self._rates_steps else None
        return {"client_lr": self._first_rate(client_lr, relative)}

    def opening(self) -> Metrics:
        """The metrics of round 0, of all trials, with the rates of the first round."""
        params = self.now.state.params
        client_lr, server_lr = rates_of(self.setting.spec, self.now.schedule)
        metrics = opening(self._evaluated(params, client_lr, 0), client_lr, server_lr)
        if "params" in self.setting.spec.report:
            metrics["params"] = self.setting.model.layout.vector(params[:, 0])
        return metrics

    def join(self, leader: Lane) -> None:
        """Shares the state of `leader`, which is equal to its own (see `sharing`)."""
        self.now.state, self.now.clients = leader.now.state, leader.now.clients

    def part(self) -> None:
        """Stops sharing client memory, which changes in place."""
        self.now.clients = self.now.clients.copy()

    def follow(self, leader: Lane) -> None:
        """Advances by the round that `leader` has just trained; both were equal until then (see `sharing`)."""
        self.now.follow(leader.now, self._scheduled(leader.monitored))

    def train_round(self, round_index: int, draw: Draw) -> Metrics:
        """Trains one round (from 0) and returns the metrics of all trials."""
        now, setting = self.now, self.setting
        spec, plan = setting.spec, setting.plan
        client_lr, server_lr, hyper = self._hyper()
        old = replace(now.state, server_lr=server_lr.to(now.state.params).view(-1, 1, 1))
        cohort = self._cohort(round_index, draw)
        with products_in(spec.dtype, setting.device):
            new = spec.method.module.train_round(hyper, old, cohort)
        if cohort.exchange is not None:
            new = cohort.exchange.only(old, new)
        if cohort.kept:
            new = new.store(**cohort.kept)
        if new.update_norm is None:
            raise RuntimeError(f"method {spec.method.name} must call state.step in every round, it did not")
        losses = {data: cohort.loss(old.params, data) for data in self._loss_data}
        shown = torch.stack([*losses.values(), new.update_norm, new.params.sum((1, 2))]).double().cpu()
        loss, norm = shown[0], shown[-2]
        first_lr = self._first_rate(client_lr, cohort.relative_rates)
        metrics = {"train_loss": loss, "update_norm": norm, "client_lr": first_lr, "server_lr": server_lr}
        if is_evaluated(round_index + 1, spec.rounds, plan.eval_every):
            metrics.update(self._evaluated(new.evaluated, client_lr, round_index + 1))
        view = RoundView(old, new, hyper, cohort, spec.loss_data, setting.model)
        for report in setting.reports:
            metrics.update(report.of_round(view))
        if "params" in spec.report:
            metrics["params"] = setting.model.layout.vector(new.evaluated[:, 0])

        self.monitored = self._monitored(shown[len(losses) - 1], old.params, cohort)
        schedule = self._scheduled(self.monitored)
        alive = now.survivors(shown.numpy(), setting.model.explosion)
        now.move(new, schedule, alive, draw.batches.clients)
        return metrics

    def lines(
        self, number: int, metrics: Metrics, reported: NDArray[np.bool_], wall_seconds: NDArray[np.float64]
    ) -> list[dict[str, Any]]:
        """Report lines, in the order of the slots.

        Args:
            number: number of server updates so far.
            metrics: metrics of all trials.
            reported: (T,) True for trials that get a line.
            wall_seconds: training time of each member of the pack.
        """
        members = np.where(reported, self._order, -1)
        diverged = reported & ~self.now.alive
        counters = self.now.counters.reported
        if tokens := self.setting.spec.tokens:
            counters["tokens"] = counters["examples"] * tokens
        if self.setting.plan.separate:
            counters[SHARED] = self.now.counters.totals[SHARED]
        return lines(number, metrics, counters, diverged, members, wall_seconds)

    def _scheduled(self, monitored: Tensor) -> dict[str, Tensor]:
        """The state of the schedule after a round."""
        return self.setting.spec.schedule.module.update(self._schedule, self.now.schedule, monitored)

    def _evaluated(self, params: Tensor, client_lr: Tensor, number: int) -> Metrics:
        """The metrics of an evaluation, including requested reports.

        Args:
            params: (T, 1, P).
            client_lr: (T,), used for adaptation.
            number: number of server updates so far.
        """
        setting = self.setting
        metrics = setting.evaluate(params, number)
        view = ModelView(params, setting.model, setting.oracle, setting.measured.whole)
        for report in setting.reports:
            metrics.update(report.of_model(view))
        if setting.adapted is not None:
            metrics.update(setting.adapted.evaluate(params, client_lr.to(params).view(-1, 1, 1)))
        return metrics

    @property
    def _loss_data(self) -> tuple[str, ...]:
        """The data of train_loss, and the data of the loss that the schedule monitors if they differ."""
        spec = self.setting.spec
        loss_data, monitored = spec.loss_data, spec.monitored_data
        return (loss_data,) if monitored == loss_data or self.setting.monitor != "loss" else (loss_data, monitored)

    def _monitored(self, loss: Tensor, params: Tensor, cohort: Cohort) -> Tensor:
        """(T,) the value that the schedule monitors: this loss, or the accuracy on the same data."""
        if self.setting.monitor == "loss":
            return loss
        accuracy = self.setting.model.accuracy(params, cohort.data(self.setting.spec.monitored_data))
        if accuracy is None:
            raise SpecError('schedule.monitor must be "loss": the model has no accuracy', "schedule.monitor")
        left_out = cohort.measured_mean(accuracy.isnan().to(accuracy))
        return (cohort.measured_mean(accuracy.nan_to_num()) / (1 - left_out)).double().cpu()

    def _cohort(self, round_index: int, draw: Draw) -> Cohort:
        now, setting, clients = self.now, self.setting, draw.batches.clients
        central = None if setting.central is None else setting.central.at(round_index, now.alive, now.counters)
        context = RoundContext(
            draw=draw,
            oracle=setting.oracle,
            parameters=setting.model.layout.count,
            counters=now.counters,
            alive=now.alive,
            central=central,
            memory=now.clients.gather(clients),
            optimizer=self._client_optimizer,
            relative_rates=self.relative_rates(draw),
            quantiser=self._quantiser,
            exchange=None if self._fragments is None else self._fragments.exchange(round_index),
        )
        return Cohort(context)

    def _hyper(self) -> tuple[Tensor, Tensor, Any]:
        """(client_lr, server_lr, the method's hyperparameters) of the next round; cached until the schedule changes."""
        schedule = self.now.schedule
        if self._rated is None or self._rated[0] is not schedule:
            client_lr, server_lr = rates_of(self.setting.spec, schedule)
            self._rated = schedule, client_lr, server_lr, self._method_at(client_lr, server_lr)
        return self._rated[1:]

    def _method_at(self, client_lr: Tensor, server_lr: Tensor) -> Any:
        """The method's hyperparameters with the rates of the round."""
        part, like = self.setting.spec.method, self.setting.like
        rates = zip(RATES, (client_lr, server_lr), strict=True)
        round_rates = {name: rate.to(like).view(-1, 1, 1) for name, rate in rates if name in part.values}
        return part.module.Hyper(**self.settings, **round_rates)
