"""The default frame of the local loop: one replica per client."""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.engine.oracles.frame import Frame, Motion
from trainers.engine.oracles.oracle import LocalGradients, StepBatches, replicas


class Replicas(Frame):
    """The default frame: keeps the sum of gradients of every client.

    Args:
        gradients: gradients of the clients.
        batches: batches of the round.
        motion: motion of the models.
        total: (T, M, P) for the sums of gradients, client-major, overwritten; None allocates it.
    """

    def __init__(
        self, gradients: LocalGradients, batches: StepBatches, motion: Motion, total: Tensor | None = None
    ) -> None:
        self.gradients = gradients
        self.batches = batches
        self.motion = motion
        trials, _, size = motion.start.shape
        self.total = replicas(motion.start, trials, len(batches.clients), size) if total is None else total.zero_()
        self.totals = [self.total]
        self.model = torch.empty_like(self.total) if motion.moving else None

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the sums by one step; returns the losses if `want_loss`."""
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
        return self.gradients.add_gradient_(here, self.batches.batch(step, busy), self.total[:width], want_loss)

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts sums to gradients (T, M, P)."""
        return sums[0]
