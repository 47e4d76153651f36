"""The contract of a report, and its two views: the models between two rounds, and a round that has just finished.

Reports change nothing: no counter counts the gradients taken here, and no random draw depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.evaluation.client_chunks import client_chunks
from trainers.engine.oracles.oracle import Model, Oracle
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.errors import SpecError

if TYPE_CHECKING:
    from trainers.contracts import Method


@dataclass(frozen=True)
class Spread:
    """How the gradients of all clients differ, (T,) float64 each.

    Args:
        misalignment: half the weighted mean of |g_i - g|^2.
        difference_norm: |g - g_1|, where g_1 is the gradient of the first client.
    """

    misalignment: Tensor
    difference_norm: Tensor


@dataclass(frozen=True)
class ModelView:
    """The broadcast models after a round, or before the first one.

    Args:
        params: (T, 1, P).
        model: the model with all clients.
        oracle: the oracle of the pack.
        weights: (clients,) weights with sum 1.
    """

    params: Tensor
    model: Model
    oracle: Oracle
    weights: NDArray[np.float64]

    @cached_property
    def full_loss(self) -> Tensor:
        """(T,) weighted mean over all clients of their losses on all their data."""
        return self.model.full_loss(self.params, self.weights)

    @cached_property
    def train_accuracy(self) -> Tensor:
        """(T,) weighted mean of all clients' accuracies on all their data; clients without an accuracy are left out.

        Raises:
            SpecError: the model has no accuracy.
        """
        total = torch.zeros_like(self.params[:, 0, 0], dtype=torch.float64)
        left_out = torch.zeros_like(total)
        source = self.model.source(0, None, "with_replacement")
        for clients in self._chunks():
            batches = source.round(0, clients)
            accuracy = self.model.accuracy(self.params, batches.full())
            if accuracy is None:
                raise SpecError("report must not contain train_accuracy: the model has no accuracy", "report")
            weights = torch.as_tensor(self.weights[batches.clients], device=total.device)
            total = total + accuracy.double().nan_to_num() @ weights
            left_out = left_out + accuracy.isnan().double() @ weights
        return total / (1 - left_out)

    @cached_property
    def spread(self) -> Spread:
        """How the gradients of all clients on all their data differ; one pass over the clients, in parts.

        Means and misalignments of the parts are combined exactly. With weights w of the parts, misalignment = sum of
        w (misalignment of the part + |mean of the part - mean|^2 / 2). A difference of squares would cancel all digits
        if clients are well aligned.
        """
        whole, total = 0.0, torch.zeros_like(self.params[:, 0], dtype=torch.float64)
        spread = total.new_zeros(total.shape[0])
        first: Tensor | None = None
        source = self.model.source(0, None, "with_replacement")
        for clients in self._chunks():
            batches = source.round(0, clients)
            _, gradients = self.oracle.value_and_grad(self.params, batches.full())
            gradients = gradients.double()
            if clients[0] == 0:
                first = gradients[:, int(np.flatnonzero(batches.clients == 0)[0])].clone()
            weights = torch.as_tensor(self.weights[batches.clients], device=total.device)
            share = float(weights.sum())
            if share == 0:
                continue
            mean = (weights / share) @ gradients
            misalignment = ((gradients - mean.unsqueeze(1)).square().sum(-1) @ weights) / (2 * share)
            joined = whole + share
            gap = (mean - total).square().sum(-1)
            spread = (whole * spread + share * misalignment) / joined + whole * share / joined**2 * gap / 2
            total = total + share / joined * (mean - total)
            whole = joined
        assert first is not None
        return Spread(spread, (total - first).norm(dim=-1))

    def _chunks(self) -> list[NDArray[np.int64]]:
        """All clients, in order, in parts whose gradients and examples fit into memory."""
        trials, _, size = self.params.shape
        return client_chunks(range(self.model.clients), self.model.examples, trials, trials * size * 8)


@dataclass(frozen=True)
class RoundView:
    """A round that has just finished.

    Args:
        before: the state before the round.
        after: the state after the round.
        hyper: the method's hyperparameters with the rates of the round, traced ones (T, 1, 1).
        cohort: the clients of the round.
        data: "batches" or "full": the data that the trial's train_loss is measured on.
        model: the model with all clients.
    """

    before: State
    after: State
    hyper: Any
    cohort: Cohort
    data: str
    model: Model

    @cached_property
    def gradients(self) -> Tensor:
        """(T, M, P) gradients of the cohort at the model before the round, on the data of train_loss."""
        return self.cohort.peek(self.before.params, self.data)


class ChosenMethod(Protocol):
    """The method of a trial, a `trainers.trial.parts.Part`."""

    @property
    def name(self) -> str:
        """The name of its module."""

    @property
    def module(self) -> Method:
        """The plug-in."""

    @property
    def values(self) -> Mapping[str, tuple[Any, ...]]:
        """Hyperparameter -> one value for each member."""


class ReportModule(Protocol):
    """A module in trainers/reports; a report changes nothing. Only `METRICS` is required.

    Attributes:
        METRICS: names of the metrics that it adds to report lines.
        PASSES: cost of one evaluation, in passes over all training data.
        NEEDS: metrics that the task must report.
    """

    METRICS: tuple[str, ...]
    PASSES: float = 0.0
    NEEDS: tuple[str, ...] = ()

    def refuse(self, method: ChosenMethod) -> str | None:
        """Why this report is not possible with a method; None if it is possible.

        Args:
            method: the method of the trial.
        """
        return None

    def of_model(self, view: ModelView) -> dict[str, Tensor]:
        """(T,) values by name, at every evaluation.

        Args:
            view: the evaluated models.
        """
        return {}

    def of_round(self, view: RoundView) -> dict[str, Tensor]:
        """(T,) values by name, after every round.

        Args:
            view: the finished round.
        """
        return {}
