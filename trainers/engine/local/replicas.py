"""The default frame of the local loop: one replica per client."""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.engine.oracles.frame import Frame, Motion, subtract_
from trainers.engine.oracles.oracle import LocalGradients, StepBatches, replicas, unset_replicas


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
        steady = motion.relative_rates is None
        self.gradient = None if steady else unset_replicas(motion.start, *self.total.shape)
        self._busy: tuple[int, int] | None = None

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the sums by one step; returns the losses if `want_loss`."""
        if self._busy != (width, busy):
            self._busy = width, busy
            self._narrow(width, busy)
        models, scale = self._start, self._scale
        relative: Tensor | float = 1.0
        if self.gradient is not None:
            relative, scale = self.motion.at(step, width)
        if step > 0:
            if self._model is not None:
                models = torch.addcmul(models, self._held, self._rate, value=-1, out=self._model)
            if scale is not None:
                self._held.mul_(scale)
        if self._shift is not None:
            self._held.add_(self._shift if self.gradient is None else relative * self._shift)
        batch = self.batches.batch(step, busy)
        if self.gradient is None:
            return self.gradients.add_gradient_(models, batch, self._total, want_loss)
        loss = self.gradients.gradient_(models, batch, self.gradient[:width], want_loss)
        subtract_(self._held, self.gradient[:width, :busy], -relative)
        return loss

    def _narrow(self, width: int, busy: int) -> None:
        """Takes the views of the first trials and clients, once for all steps in which the same ones are busy."""
        motion = self.motion
        self._total, self._held = self.total[:width], self.total[:width, :busy]
        self._start, self._rate = motion.start[:width, :busy], motion.client_lr[:width]
        self._model = None if self.model is None else self.model[:width, :busy]
        self._scale = None if motion.scale is None else motion.scale[:width]
        self._shift = None if motion.shift is None else motion.shift[:width, :busy]

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts sums to gradients (T, M, P)."""
        return sums[0]
