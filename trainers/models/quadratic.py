"""Quadratic client losses: f_i(x) = 0.5 (x - c_i)' A_i (x - c_i) + constant, gradient A_i (x - c_i), Hessian A_i.

With gradient_noise G every gradient gets independent normal noise with standard deviation G / sqrt(batch_size) per
coordinate, drawn from (seed, round, client, step); batch_size None counts as 1. Losses have no noise.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine import randomness
from trainers.engine.layout import Layout
from trainers.engine.memory import owned
from trainers.engine.oracles.oracle import Batch, Group, Oracle, client_major, replicas
from trainers.problem import Problem, Quadratics
from trainers.trial.passes import PassEnd

__all__ = ["Quadratic"]

TARGETS = "none"
FIXED_START = True


class Quadratic:
    """The model and its clients' losses on a device.

    Args:
        problem: a problem whose `train` is a Quadratics.
        dtype: type of all tensors.
        device: device of all tensors.
    """

    explosion = 1e6  # momentum alone may raise a quadratic's loss a thousandfold before it falls

    def __init__(self, problem: Problem, dtype: torch.dtype, device: torch.device) -> None:
        losses = problem.train
        if not isinstance(losses, Quadratics):
            raise TypeError(f"the quadratic model must get Quadratics, got {type(losses).__name__}")
        self.clients = losses.clients
        self.dimension = losses.centers.shape[1]
        self.layout = Layout.of({"x": (self.dimension,)})
        self.client_weights = _weights(problem, losses.clients)
        self.examples: NDArray[np.int64] | None = None
        self.gradient_noise = losses.gradient_noise
        self.empty = torch.empty(0, dtype=dtype, device=device)
        self.hessians = owned(losses.hessians, self.empty)
        self.centers = owned(losses.centers, self.empty)
        self.constants = owned(losses.constants, self.empty)
        self.oracles: Mapping[str, Oracle] = {"closed_form": _ClosedForm(self.dimension)}

        weights = self.client_weights
        hessian = np.einsum("i,ijk->jk", weights, losses.hessians)
        pull = np.einsum("i,ijk,ik->j", weights, losses.hessians, losses.centers)
        optimum = np.linalg.solve(hessian, pull) if problem.optimum is None else np.asarray(problem.optimum)
        away = optimum - losses.centers
        least = 0.5 * np.einsum("ij,ijk,ik->i", away, losses.hessians, away) + losses.constants
        self.least = float(weights @ least)
        self.optimum = owned(optimum, self.empty)
        self.hessian = owned(hessian, self.empty)
        self._slope = owned(hessian @ optimum - pull, self.empty)  # 0 unless a given optimum is inexact

    def start(self, init: Sequence[float] | None, seed: int) -> Tensor:
        """The (P,) initial model; without `init` it is 0."""
        values = np.zeros(self.dimension) if init is None else np.asarray(init, dtype=np.float64)
        return self.layout.row(torch.as_tensor(values).to(self.empty))

    def source(
        self,
        seed: int,
        batch_size: int | None,
        batching: str,
        end: PassEnd = "joined",
        round_batches: int | None = None,
    ) -> _Source:
        """The batches of all rounds."""
        return _Source(self, seed, batch_size)

    def evaluate(
        self, params: Tensor, reports: Collection[str] = (), drawn: NDArray[np.int64] | None = None
    ) -> dict[str, Tensor]:
        """The exact loss over all clients, its excess over the minimum, and the distance to the minimizer, (T,) each.

        The excess is computed from the distance, without cancellation.

        Args:
            params: (T, 1, P).
            reports: not used.
            drawn: not used, since nothing is held out.
        """
        away = params[:, 0, : self.dimension] - self.optimum
        excess = 0.5 * ((away @ self.hessian) * away).sum(-1)
        loss = excess + away @ self._slope + self.least
        return {"loss": loss, "excess_loss": excess, "distance": away.norm(dim=-1)}

    def full_loss(self, params: Tensor, weights: NDArray[np.float64]) -> Tensor:
        """(T,) exact loss over all clients with the task's own weights, the same as in `evaluate`.

        Args:
            params: (T, 1, P).
            weights: not used, since a quadratic task has no other weights than its own.
        """
        return self.evaluate(params)["loss"]

    def accuracy(self, params: Tensor, batch: Batch) -> Tensor | None:
        """None: quadratics have no accuracy."""
        return None


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Quadratic:
    """The model of a problem."""
    return Quadratic(problem, dtype, device)


class _Source:
    """Batches of a quadratic problem: the clients' matrices, and noise.

    Args:
        model: the model with the clients.
        seed: seed of the trial.
        batch_size: number of noise draws that a gradient averages; None is one.
    """

    def __init__(self, model: Quadratic, seed: int, batch_size: int | None) -> None:
        self.model = model
        self.seed = seed
        self.deviation = model.gradient_noise / math.sqrt(batch_size or 1)
        self._all: Mapping[str, Tensor] = {
            "hessians": model.hessians,
            "centers": model.centers,
            "constants": model.constants,
        }

    def round(self, round_index: int, clients: NDArray[np.int64], work: NDArray[np.float64] | None = None) -> _Round:
        """The batches of one round; `work` (M,) is the share of its steps that each client takes, None all of them."""
        if work is not None:
            order = np.lexsort((clients, -work))
            clients, work = clients[order], work[order]
        if len(clients) == self.model.clients and work is None:
            return _Round(self, round_index, clients, self._all)
        rows = torch.as_tensor(clients, device=self.model.hessians.device)
        return _Round(self, round_index, clients, {name: tensor[rows] for name, tensor in self._all.items()}, work)


class _Round:
    """Batches of one cohort in one round."""

    def __init__(
        self,
        source: _Source,
        round_index: int,
        clients: NDArray[np.int64],
        data: Mapping[str, Tensor],
        work: NDArray[np.float64] | None = None,
    ) -> None:
        self.source = source
        self.clients = clients
        self.work = work
        self.always_full = source.deviation == 0
        self.round_index = round_index
        self.data = data
        self._noise: Tensor | None = None

    def prepare(self, local_steps: int, limits: NDArray[np.int64] | None = None) -> None:
        """Draws the noise of the first `local_steps` steps."""
        if self.source.deviation == 0 or (self._noise is not None and self._noise.shape[1] >= local_steps):
            return
        base = randomness.key(self.source.seed, self.round_index, randomness.Purpose.NOISE)
        noise = randomness.normals(base, self.clients, local_steps, self.source.model.dimension)
        self._noise = torch.as_tensor(noise * self.source.deviation).to(self.source.model.empty)

    def epoch_steps(self, local_epochs: int) -> NDArray[np.int64]:
        """(M,) steps; without countable examples a pass is one step."""
        return np.full(len(self.clients), local_epochs, np.int64)

    @property
    def full_gradients(self) -> NDArray[np.int64]:
        """(M,) ones."""
        return np.ones(len(self.clients), np.int64)

    @property
    def full_examples(self) -> NDArray[np.int64]:
        """(M,) ones: a loss without examples counts as one."""
        return np.ones(len(self.clients), np.int64)

    def examples(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """(..., M): one for each step."""
        return steps

    def batch(self, step: int, clients: int) -> Batch:
        """The first `clients` clients' losses, with the step's noise."""
        data = self.data if clients == len(self.clients) else {name: rows[:clients] for name, rows in self.data.items()}
        if self.source.deviation:
            self.prepare(step + 1)
            assert self._noise is not None
            data = {**data, "noise": self._noise[:clients, step]}
        return (Group(0, clients, data),)

    def full(self) -> Batch:
        """Exact losses."""
        return (Group(0, len(self.clients), self.data),)

    def distinct(self, steps: int) -> None:
        """None: there are no examples."""


class _ClosedForm(Oracle):
    """Loss, gradient and Hessian-vector products in closed form.

    Args:
        dimension: d, the true number of parameters.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """(T, M) mean losses."""
        return torch.cat([self._loss(*self._away(params, group), group) for group in batch], 1)

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """(T, M, P) Hessian-vector products."""
        total = replicas(params, params.shape[0], batch[-1].stop, params.shape[-1])
        for group in batch:
            products = client_major(total, group)
            products[..., : self.dimension] = self._times(client_major(vector, group)[..., : self.dimension], group)
        return total

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """Adds the gradients to `total` in place; returns the losses if `want_loss`."""
        losses = []
        for group in batch:
            away, pull = self._away(params, group)
            if want_loss:
                losses.append(self._loss(away, pull, group))
            gradients = client_major(total, group)[..., : self.dimension]
            gradients += pull
            if "noise" in group.data:
                gradients += group.data["noise"][:, None]
        return torch.cat(losses, 1) if want_loss else None

    def _away(self, params: Tensor, group: Group) -> tuple[Tensor, Tensor]:
        """(m, T, d): x - c and A (x - c)."""
        away = client_major(params, group)[..., : self.dimension] - group.data["centers"][:, None]
        return away, self._times(away, group)

    def _times(self, vectors: Tensor, group: Group) -> Tensor:
        hessians = group.data["hessians"]
        return vectors * hessians if self.dimension == 1 else torch.bmm(vectors, hessians)

    def _loss(self, away: Tensor, pull: Tensor, group: Group) -> Tensor:
        return (0.5 * (away * pull).sum(-1) + group.data["constants"][:, None]).T


def _weights(problem: Problem, clients: int) -> NDArray[np.float64]:
    if problem.client_weights is None:
        return np.full(clients, 1.0 / clients)
    return np.asarray(problem.client_weights, dtype=np.float64)
