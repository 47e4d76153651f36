"""Frames of the local loop: what the running sums of gradients are kept in while clients step (engine/local.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainers.engine.oracle import Oracle, RoundBatches, replicas


@dataclass(frozen=True)
class Motion:
    """How the running sums U of gradients move the models: y = start - client_lr U, U <- scale U + shift + gradient.

    Args:
        start: (T, 1 or M, P).
        client_lr: (T, 1, 1).
        scale: (T, 1, 1); None is 1.
        shift: (T, 1 or M, P); None is 0.
        moving: whether any model moves before its last gradient.
        pull: (T, 1, 1), scale is 1 - client_lr pull; None is 0.
    """

    start: Tensor
    client_lr: Tensor
    scale: Tensor | None
    shift: Tensor | None
    moving: bool
    pull: Tensor | None = None


class Frame(Protocol):
    """Coordinates in which running sums of gradients are kept; anything linear in the gradients will do.

    Attributes:
        totals: running sums, (T, clients, numbers) each, all clients of the cohort together; 0 at first.
    """

    totals: list[Tensor]

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Moves the sums of the first `width` trials and `busy` clients one step on.

        Returns:
            Losses (width, busy) before the step, if wanted.
        """
        ...

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Sums in these coordinates, shaped as `totals`, as gradients (T, M, P), client-major."""
        ...


class Replicas:
    """The plain frame: a gradient for every client.

    Args:
        oracle: of the model.
        batches: of the round.
        motion: of the models.
        total: (T, M, P) zeros to keep the gradients in, client-major; None makes them.
    """

    def __init__(self, oracle: Oracle, batches: RoundBatches, motion: Motion, total: Tensor | None = None) -> None:
        self.oracle = oracle
        self.batches = batches
        self.motion = motion
        trials, _, size = motion.start.shape
        self.total = replicas(motion.start, trials, len(batches.clients), size) if total is None else total
        self.totals = [self.total]
        self.model = torch.empty_like(self.total) if motion.moving else None

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """See Frame."""
        motion = self.motion
        held, here = self.total[:width, :busy], motion.start[:width, :busy]
        if step > 0:
            if self.model is not None:
                out = self.model[:width, :busy]
                here = torch.addcmul(here, held, motion.client_lr[:width], value=-1, out=out)
            if motion.scale is not None:
                held.mul_(motion.scale[:width])
        if motion.shift is not None:
            held.add_(motion.shift[:width, :busy])
        return self.oracle.add_gradient_(here, self.batches.batch(step, busy), self.total[:width], want_loss)

    def lift(self, sums: list[Tensor]) -> Tensor:
        """See Frame."""
        return sums[0]
