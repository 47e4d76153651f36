"""A client optimizer that also keeps the sum of the gradients it is given, where their mean is to be sent back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainers.engine.local.client_optimizer import ClientOptimizer
from trainers.engine.local.loop import Local, LocalWork

GRADIENTS = "gradients"


@dataclass(frozen=True)
class Recorded:
    """Steps as another client optimizer does, and returns the sum of the gradients as well.

    Args:
        optimizer: that takes the steps.
    """

    optimizer: ClientOptimizer

    @property
    def returned(self) -> tuple[str, ...]:
        """See ClientOptimizer; the sum of the gradients in front."""
        return (GRADIENTS, *self.optimizer.returned)

    @property
    def decoupled(self) -> bool:
        """See ClientOptimizer."""
        return self.optimizer.decoupled

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """See ClientOptimizer."""
        return {GRADIENTS: torch.zeros_like(like), **self.optimizer.init(like)}

    def step_(self, total: Tensor, memory: dict[str, Tensor], gradient: Tensor, step: int) -> None:
        """See ClientOptimizer."""
        memory[GRADIENTS].add_(gradient)
        own = {name: held for name, held in memory.items() if name != GRADIENTS}
        self.optimizer.step_(total, own, gradient, step)

    def rows(self, rows: slice) -> Recorded:
        """See ClientOptimizer."""
        return replace(self, optimizer=self.optimizer.rows(rows))


def recorded(work: LocalWork) -> LocalWork:
    """The same work with the gradients kept; itself where the steps are the gradients.

    Args:
        work: of the clients, with all weights 1.
    """
    return work if work.optimizer is None else replace(work, optimizer=Recorded(work.optimizer))


def gradient_sums(done: Local) -> Tensor:
    """(T, M, P) sums of each client's local gradients, corrections and clipping included.

    Args:
        done: what came of `recorded` work.
    """
    return done.kept.get(GRADIENTS, done.pseudo_gradient)


def mean_gradients(done: Local) -> Tensor:
    """(T, M, P) means of each client's local gradients, over its own steps.

    Args:
        done: what came of `recorded` work.
    """
    sums = gradient_sums(done)
    return sums / torch.tensor(done.steps).clamp(min=1).to(sums).unsqueeze(-1)
