"""What trials of a pack share: the task's model and data, the draws of a round, and the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.contracts import Optimizer
from trainers.engine import randomness
from trainers.engine.batches.by_seed import RoundBySeed
from trainers.engine.batches.examples import ExampleRound, Remembered
from trainers.engine.memory import owned
from trainers.engine.oracles.all_trials import AllTrials
from trainers.engine.oracles.oracle import HasMatrices, Matrices, RoundBatches, Source
from trainers.engine.packs.build import (
    adapted_clients,
    build_model,
    by_work,
    central_data,
    default_device,
    first_model,
    training_weights,
)
from trainers.engine.packs.plan import Plan, fastest_oracle
from trainers.engine.products import products_in
from trainers.engine.rounds.round_context import Draw
from trainers.errors import SpecError
from trainers.registry import reports
from trainers.target_kinds import REPORTS
from trainers.trial import model_reports
from trainers.trial.document import TrialSpec
from trainers.values import shown


class PopulationWeights:
    """Weights of all clients, and of the cohorts among them.

    Args:
        whole: (clients,) weights of all clients.
        like: a tensor with the pack's type and device.
    """

    def __init__(self, whole: NDArray[np.float64], like: Tensor) -> None:
        self.whole = whole
        self._like = like
        self._total = float(whole.sum())  # over the population
        self._equal = bool((whole == whole[0]).all())
        self._made: tuple[Tensor, float] | None = None

    def of(self, clients: NDArray[np.int64]) -> tuple[Tensor, float]:
        """((M,) weights with sum 1, share of the weights of all clients) of a cohort; cached if weights are equal.

        Args:
            clients: (M,) client ids; M is the same in all calls.
        """
        if self._made is not None:
            return self._made
        weights = self.whole[clients]
        total = weights.sum()
        weights = weights / total if total > 0 else weights  # a cohort of weight 0 changes nothing
        result = owned(weights, self._like), float(total / self._total)
        if self._equal:
            self._made = result
        return result


STACKED = "stacked"
"""Name of the oracle that computes all clients of a trial at once, for trials with seeds of their own."""


class PackSetting:
    """Model, data and plan of members of a pack that have the same seed, or are joined with seeds of their own.

    Attributes:
        training: weights of the clients in training.
        measured: weights of the clients in metrics and reports.

    Args:
        spec: the trials.
        device: "auto", "cpu", "cuda", ...
        plan: how to compute; None measures which oracle is fastest.
        members: index of each of these members; None is all of the pack.
        joined: whether members have seeds of their own, in the order of their slots (engine/packs/seeds.py).

    Raises:
        SpecError: the plan has an unknown oracle, or fewer slots than there are members.
    """

    def __init__(
        self,
        spec: TrialSpec,
        device: str,
        plan: Plan | None,
        members: NDArray[np.int64] | None = None,
        *,
        joined: bool = False,
    ) -> None:
        self.spec = spec
        self.members = by_work(spec) if members is None else members
        self.joined = joined
        self.seed = spec.seeds[self.members[0]]
        self.device = default_device(device)
        self._name, self.model = build_model(spec, self.device)
        self.like = torch.empty(0, dtype=getattr(torch, spec.held_dtype), device=self.device)
        self.source = self._new_source(self.seed)
        seeds = [spec.seeds[member] for member in self.members] if joined else [self.seed]
        self._sources = {seed: self._new_source(seed) for seed in seeds[1:]} | {self.seed: self.source}
        self.clients_per_round = spec.clients_per_round or self.model.clients
        self.measured = PopulationWeights(self.model.client_weights, self.like)
        differs = spec.training_weighting != spec.weighting
        self.training = PopulationWeights(training_weights(spec, self.model), self.like) if differs else self.measured
        self.reports = [reports()[name] for name in spec.report if name in reports()]
        self.monitor = spec.schedule.structural.get("monitor", "loss")
        self._seeds = seeds
        started = {seed: first_model(spec, self.model, seed).to(self.like) for seed in self._sources}
        self._first_models = torch.stack([started[seed] for seed in seeds])
        self.plan = self._decide() if plan is None else self._adopt(plan)
        self.oracle = self.model.oracles[self.plan.oracle]
        if joined:
            stacked = self.model.oracles[STACKED]
            self.oracle = stacked if isinstance(stacked, AllTrials) else AllTrials(stacked)
        self.adapted = adapted_clients(spec, self.device, self.plan.oracle)
        self.central = central_data(spec, self.seed, self.device, self.plan.oracle, self.clients_per_round)

    def first_models(self, trials: int) -> Tensor:
        """(T, 1, P) the initial model of each trial."""
        return self._first_models.expand(trials, -1).unsqueeze(1).clone()

    def matrices_for(self, optimizer: Optimizer) -> Matrices:
        """The model's hidden matrices, for an optimizer that treats them apart; none for others."""
        if optimizer.matrix_direction_ is None or not isinstance(self.model, HasMatrices):
            return ()
        return self.model.hidden_matrices()

    def draw(self, round_index: int) -> Draw:
        """The clients of a round (from 0)."""
        if not self.joined:
            return self._draw(round_index, self.seed)
        draws = {seed: self._draw(round_index, seed) for seed in self._sources}
        return _joined([draws[seed] for seed in self._seeds])

    def _draw(self, round_index: int, seed: int) -> Draw:
        """The clients of a round for one seed."""
        clients = randomness.cohort(seed, round_index, self.model.clients, self.clients_per_round)
        batches, dropped = self._batches(round_index, seed, clients)
        weights, share = self.training.of(batches.clients)
        measured = weights if self.measured is self.training else self.measured.of(batches.clients)[0]
        several = self.plan.separate and self.spec.members > 1
        return Draw(Remembered(batches) if several else batches, weights, share, measured, dropped)

    def _batches(
        self, round_index: int, seed: int, clients: NDArray[np.int64]
    ) -> tuple[RoundBatches, RoundBatches | None]:
        """The batches of the clients that a round keeps, and those of the clients that it drops, if any."""
        stragglers, source = self.spec.stragglers, self._sources[seed]
        if stragglers is None:
            return source.round(round_index, clients), None
        count, (low, high) = stragglers.count(len(clients)), stragglers.work
        straggles, uniform = randomness.stragglers(seed, round_index, clients, count)
        work = np.where(straggles, low + (high - low) * uniform, 1.0)
        if stragglers.kept:
            return source.round(round_index, clients, work), None
        kept, dropped = clients[~straggles], clients[straggles]
        return source.round(round_index, kept), source.round(round_index, dropped, work[straggles])

    def evaluate(self, params: Tensor, number: int) -> dict[str, Tensor]:
        """Metrics (T,) of broadcast models (T, 1, P), on the round's sample of held-out clients if the trial has one.

        Args:
            params: (T, 1, P).
            number: number of server updates so far.
        """
        spec = self.spec
        if spec.evaluation is None:
            metrics = self.model.evaluate(params, spec.report)
        else:
            sample, purpose = spec.evaluation.clients, randomness.Purpose.HELD_OUT
            drawn = randomness.cohort(self.seed, number, len(spec.task.test or ()), sample, purpose)
            metrics = self.model.evaluate(params, spec.report, drawn)
        if getattr(spec.task, "validation", None) is not None and "validation_loss" not in metrics:
            raise SpecError(
                f"task.validation must be left out: the model {self._name} does not report it", "task.validation"
            )
        for report in spec.report:
            names = model_reports.added(report, spec.task) if report in REPORTS else ()
            if not set(names) <= metrics.keys():  # a model of another package may not know the report
                raise SpecError(
                    f"report must not contain {report}: the model {self._name} does not report it", "report"
                )
        return metrics

    def _decide(self) -> Plan:
        spec = self.spec
        params, steps = self.first_models(len(self.members)), self._most_steps()
        with products_in(spec.dtype, self.device):
            race = self._name, spec.dtype, self.model, self._typical, params, steps
            oracle = STACKED if self.joined else fastest_oracle(*race)
        return Plan(oracle, spec.members, torch.get_num_threads(), self.device.type, spec.dtype, spec.eval_every)

    def _new_source(self, seed: int) -> Source:
        spec = self.spec
        return self.model.source(seed, spec.batch_size, spec.batching, spec.pass_end, spec.round_batches)

    def _typical(self) -> RoundBatches:
        """The batches of a typical round: of a new cohort, unless all clients take part in every round."""
        source = self.source
        if self.clients_per_round < self.model.clients:
            source = self._new_source(self.seed)
        cohort = randomness.cohort(self.seed, 0, self.model.clients, self.clients_per_round)
        return source.round(0, cohort)

    def _most_steps(self) -> int | None:
        """The largest number of local steps of any trial; None if only the method knows it."""
        return max((count or 0 for count in self.spec.method.values.get("local_steps", ())), default=0) or None

    def _adopt(self, plan: Plan) -> Plan:
        """Enforces a given plan, except for its device and dtype: those are the pack's own."""
        if plan.oracle not in self.model.oracles:
            oracles = ", ".join(self.model.oracles)
            raise SpecError(f"the plan's oracle must be one of {oracles}, got oracle={shown(plan.oracle)}")
        if plan.width < self.spec.members:
            raise SpecError(
                f"the plan's width must be at least {self.spec.members}, the members of the pack, "
                f"got width={shown(plan.width)}"
            )
        if plan.threads != torch.get_num_threads():
            torch.set_num_threads(plan.threads)
        oracle = STACKED if self.joined else plan.oracle
        return replace(plan, oracle=oracle, device=self.device.type, dtype=self.spec.dtype)


def _joined(draws: Sequence[Draw]) -> Draw:
    """The clients of a round of trials with seeds of their own, from those of each trial."""
    rounds = [draw.batches for draw in draws if isinstance(draw.batches, ExampleRound)]
    shares, weights = [draw.share for draw in draws], _common([draw.weights for draw in draws])
    same = all(draw.measured is draw.weights for draw in draws)
    measured = weights if same else _common([draw.measured for draw in draws])
    share = shares[0] if len(set(shares)) == 1 else torch.tensor(shares, dtype=torch.float64).to(weights).view(-1, 1, 1)
    return Draw(RoundBySeed(rounds), weights, share, measured)


def _common(weights: Sequence[Tensor]) -> Tensor:
    """(T, M) weights of the clients of each trial, or (M,) if they are the same."""
    return weights[0] if all(own is weights[0] for own in weights) else torch.stack(list(weights))
