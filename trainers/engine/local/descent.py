"""The frame of a trial whose oracle takes steps itself: it moves the models, and no running sums are kept."""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.engine.oracles.frame import Frame, Motion
from trainers.engine.oracles.oracle import LocalGradients, StepBatches, unset_replicas


class Descent(Frame):
    """A Frame whose total is the clients' models y; sums are U = (start - y) / client_lr.

    A step is y <- y - client_lr (gradient + shift + pull (y - start)), in at most one pass over y besides the products
    of the gradient.

    Args:
        gradients: gradients of the clients, which can descend.
        batches: batches of the round.
        motion: motion of the models, with a rate.
        total: (1, M, P) for the sums, client-major, overwritten; None allocates it.
    """

    def __init__(
        self, gradients: LocalGradients, batches: StepBatches, motion: Motion, total: Tensor | None = None
    ) -> None:
        assert motion.rate is not None
        self.gradients = gradients
        self.batches = batches
        self.rate = motion.rate
        self.client_lr = motion.client_lr
        self.start = motion.start
        shape = 1, len(batches.clients), motion.start.shape[-1]
        self.models = (unset_replicas(motion.start, *shape) if total is None else total).copy_(motion.start)
        self.totals = [self.models]
        self.scale = None if motion.scale is None else float(motion.scale)
        constant = None if motion.shift is None else motion.shift * -self.rate
        if self.scale is not None:
            pulled = motion.start * (1 - self.scale)
            constant = pulled if constant is None else constant + pulled
        self.constant = None if constant is None else constant.expand_as(self.models)

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the models by one step; returns the losses if `want_loss`."""
        constant, scale = self.constant, self.scale

        def pull_(clients: slice) -> None:
            assert constant is not None
            models = self.models[:, clients]
            if scale is None:
                models.add_(constant[:, clients])
            else:
                torch.add(constant[:, clients], models, alpha=scale, out=models)

        batch, between = self.batches.batch(step, busy), None if constant is None else pull_
        return self.gradients.descend_(self.models[:, :busy], batch, self.client_lr, between, want_loss)

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts models to gradients (1, M, P)."""
        return torch.sub(self.start, sums[0], out=sums[0]).div_(self.rate)
