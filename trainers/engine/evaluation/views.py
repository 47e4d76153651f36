"""The contract of a report, and what it may look at: the models between two rounds, or a round that has just been done.

Looking is free of charge and changes nothing: gradients taken here are in no counter, and no draw depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.oracles.oracle import Model, Oracle
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State

if TYPE_CHECKING:
    from trainers.contracts import Method
    from trainers.trial.parts import Part

_CHUNK_BYTES = 1 << 26  # of gradients at once
_CHUNK_EXAMPLES = 1 << 15  # at once, over all trials


@dataclass(frozen=True)
class Spread:
    """How the gradients of all clients differ, (T,) float64 each.

    Args:
        misalignment: half the weighted mean of |g_i - g|^2.
        difference_norm: |g - g_1|, of the first client.
    """

    misalignment: Tensor
    difference_norm: Tensor


@dataclass(frozen=True)
class ModelView:
    """The broadcast models after a round, or before the first one.

    Args:
        params: (T, 1, P).
        model: with all clients.
        oracle: of the pack.
        weights: (clients,) sum 1.
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
    def spread(self) -> Spread:
        """How the gradients of all clients on all their data differ; one pass over the clients, some at a time.

        Means and misalignments of parts are joined exactly: with weights w of the parts, misalignment = sum w (own
        misalignment + |own mean - mean|^2 / 2). A difference of squares would lose the digits of well-aligned clients.
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
            own = ((gradients - mean.unsqueeze(1)).square().sum(-1) @ weights) / (2 * share)
            joined = whole + share
            gap = (mean - total).square().sum(-1)
            spread = (whole * spread + share * own) / joined + whole * share / joined**2 * gap / 2
            total = total + share / joined * (mean - total)
            whole = joined
        assert first is not None
        return Spread(spread, (total - first).norm(dim=-1))

    def _chunks(self) -> list[NDArray[np.int64]]:
        """All clients, in order, in parts whose gradients and examples fit into memory."""
        trials, _, size = self.params.shape
        examples = self.model.examples
        most = max(1, _CHUNK_BYTES // (trials * size * 8))
        found: list[list[int]] = [[]]
        held = 0
        for client in range(self.model.clients):
            own = trials * (1 if examples is None else int(examples[client]))
            if found[-1] and (len(found[-1]) >= most or held + own > _CHUNK_EXAMPLES):
                found.append([])
                held = 0
            found[-1].append(client)
            held += own
        return [np.array(part, np.int64) for part in found]


@dataclass(frozen=True)
class RoundView:
    """A round that has just been done.

    Args:
        before: the state that it started from.
        after: the state that it led to.
        hyper: the method's hyperparameters with the rates of the round, traced ones (T, 1, 1).
        cohort: its clients.
        data: "batches" or "full", where the trial's train_loss is taken.
        model: with all clients.
    """

    before: State
    after: State
    hyper: Any
    cohort: Cohort
    data: str
    model: Model

    @cached_property
    def gradients(self) -> Tensor:
        """(T, M, P) of the cohort's clients at the model the round started from, on the data of train_loss."""
        return self.cohort.peek(self.before.params, self.data)


class Report(Protocol):
    """A module in trainers/reports; it looks and changes nothing. Only `METRICS` must be there.

    Attributes:
        METRICS: names of what it adds to the lines.
        PASSES: what an evaluation of it costs, in passes over all training data.
        NEEDS: metrics that the task must report.
    """

    METRICS: tuple[str, ...]
    PASSES: float = 0.0
    NEEDS: tuple[str, ...] = ()

    def refuse(self, method: Part[Method]) -> str | None:
        """Why a method cannot report it; None where it can.

        Args:
            method: of the trial.
        """
        return None

    def of_model(self, view: ModelView) -> dict[str, Tensor]:
        """(T,) values by name, at every evaluation.

        Args:
            view: of the models that are evaluated.
        """
        return {}

    def of_round(self, view: RoundView) -> dict[str, Tensor]:
        """(T,) values by name, after every round.

        Args:
            view: of the round that has been done.
        """
        return {}
