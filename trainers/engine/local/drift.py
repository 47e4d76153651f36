"""How far the clients' models go from where they start: the local loop run once more with an eye on every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from trainers.engine.local.loop import Local, LocalWork, last_step
from trainers.engine.oracles.oracle import Batch, Oracle

Again = Callable[[Callable[[Oracle], Oracle], LocalWork], Local]
"""The local loop of a round, with the oracle wrapped and the work changed."""


class Watched(Oracle):
    """An oracle that takes note of how far from a model the models of each step are.

    Args:
        oracle: that answers.
        params: (T, 1, P), the model.
    """

    def __init__(self, oracle: Oracle, params: Tensor) -> None:
        self._oracle = oracle
        self._params = params
        self.squares: list[Tensor] = []

    def value(self, params: Tensor, batch: Batch) -> Tensor:
        """See Oracle."""
        return self._oracle.value(params, batch)

    def value_and_grad(self, params: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """See Oracle."""
        self._note(params, batch)
        return self._oracle.value_and_grad(params, batch)

    def hvp(self, params: Tensor, batch: Batch, vector: Tensor) -> Tensor:
        """See Oracle."""
        return self._oracle.hvp(params, batch, vector)

    def add_gradient_(self, params: Tensor, batch: Batch, total: Tensor, want_loss: bool = False) -> Tensor | None:
        """See Oracle."""
        self._note(params, batch)
        return self._oracle.add_gradient_(params, batch, total, want_loss)

    def _note(self, params: Tensor, batch: Batch) -> None:
        gaps = params - self._params[: params.shape[0]]
        self.squares.append(gaps.square().sum(-1).expand(-1, batch[-1].stop))


def drift(again: Again, params: Tensor, work: LocalWork) -> Tensor:
    """(T, M) mean over each client's local steps of the squared distance of its model from the broadcast one.

    The models after steps 1, ..., K count, whatever weights their gradients have in what is sent.

    Args:
        again: runs the local loop.
        params: (T, 1, P), the broadcast models.
        work: of the round.
    """
    seen: list[Watched] = []

    def wrap(oracle: Oracle) -> Oracle:
        seen.append(Watched(oracle, params))
        return seen[-1]

    if work.gradient_weights is not None:
        steps = torch.as_tensor(last_step(work.gradient_weights)).view(-1, 1, 1)
        work = replace(work, gradient_weights=None, local_steps=steps)
    done = again(wrap, work)
    start = params if work.displacement is None else params + work.displacement
    end = start - work.client_lr * done.pseudo_gradient - params
    counts = torch.as_tensor(np.array(done.steps), device=params.device)
    total = torch.where(counts > 0, end.square().sum(-1), 0)
    for step, squares in enumerate(seen[0].squares):
        rows, clients = squares.shape
        if step > 0:
            total[:rows, :clients] += torch.where(counts[:rows, :clients] > step, squares, 0)
    return total / counts.clamp(min=1)
