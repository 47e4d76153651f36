"""The frame of a trial whose oracle takes steps itself: it moves the models, and no running sums are kept."""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.engine.oracles.frame import Motion
from trainers.engine.oracles.oracle import LocalGradients, RoundBatches, replicas


class Descent:
    """A Frame whose total is the clients' models y; sums are U = (start - y) / client_lr.

    A step is y <- y - client_lr (gradient + shift + pull (y - start)), in at most one pass over y besides the products
    of the gradient.

    Args:
        gradients: gradients of the clients, which can descend.
        batches: batches of the round.
        motion: motion of the models, with a rate.
        total: zeros (1, M, P) that receive the sums, client-major; None allocates them.
    """

    def __init__(
        self, gradients: LocalGradients, batches: RoundBatches, motion: Motion, total: Tensor | None = None
    ) -> None:
        assert motion.rate is not None
        self.gradients = gradients
        self.batches = batches
        self.rate = motion.rate
        self.client_lr = motion.client_lr
        self.start = motion.start
        self.total = replicas(motion.start, 1, len(batches.clients), motion.start.shape[-1]) if total is None else total
        self.models = self.total.copy_(motion.start)
        self.totals = [self.models]
        self.scale = None if motion.scale is None else float(motion.scale)
        self.constant: Tensor | None = None  # (1, 1 or M, P)
        if motion.shift is not None:
            self.constant = motion.shift * -self.rate
        if self.scale is not None:
            pulled = motion.start * (1 - self.scale)
            self.constant = pulled if self.constant is None else self.constant + pulled

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the models by one step; returns the losses if `want_loss`."""
        models, constant, scale = self.models[:, :busy], self.constant, self.scale

        def between() -> None:
            if constant is not None and scale is None:
                models.add_(constant[:, :busy])
            elif constant is not None and scale is not None:
                torch.add(constant[:, :busy], models, alpha=scale, out=models)

        return self.gradients.descend_(models, self.batches.batch(step, busy), self.client_lr, between, want_loss)

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts models to gradients (1, M, P)."""
        return torch.sub(self.start, sums[0], out=sums[0]).div_(self.rate)
