"""The local loop for work that needs each gradient by itself: with a client optimizer, or with clipping.

A step takes the gradient, scales it, adds the pulls and the correction, clips, and lets the client optimizer advance
the total U of the models y = start - client_lr U. Plain gradient descent without clipping does not need this: there U
grows by the gradient itself (engine/local/loop.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.engine.local.client_optimizer import clipped_
from trainers.engine.local.work import GRADIENTS, LocalWork
from trainers.engine.oracles.frame import Motion
from trainers.engine.oracles.oracle import LocalGradients, RoundBatches, replicas


class Stepped:
    """A Frame whose replicas are moved by a client optimizer.

    Args:
        gradients: gradients of the clients.
        batches: batches of the round.
        motion: motion of the models; its pull is used instead of its scale.
        work: the clients' work, with the optimizer (None is gradient descent), clip_norm and gradient_scale.
        total: zeros (T, M, P) for the totals, client-major; None allocates them.
    """

    def __init__(
        self,
        gradients: LocalGradients,
        batches: RoundBatches,
        motion: Motion,
        work: LocalWork,
        total: Tensor | None = None,
    ) -> None:
        self.gradients = gradients
        self.batches = batches
        self.motion = motion
        self.work = work
        self.decay = work.weight_decay if work.decoupled else None
        optimizer = work.optimizer
        trials, _, size = motion.start.shape
        self.total = replicas(motion.start, trials, len(batches.clients), size) if total is None else total
        self.gradient = torch.empty_like(self.total)
        self.model = torch.empty_like(self.total) if motion.moving else None
        self.optimizer = optimizer
        self.memory = {} if optimizer is None else optimizer.init(self.total)
        answers = {} if optimizer is None else {name: self.memory[name] for name in optimizer.returned}
        self.gradient_sum = torch.zeros_like(self.total) if work.sum_gradients and optimizer is not None else None
        if self.gradient_sum is not None:
            answers[GRADIENTS] = self.gradient_sum
        self.returned = tuple(answers)
        self.totals = [self.total, *answers.values()]

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the sums by one step; returns the losses if `want_loss`."""
        motion = self.motion
        total, here = self.total[:width, :busy], motion.start[:width, :busy]
        if step > 0 and self.model is not None:
            out = self.model[:width, :busy]
            here = torch.addcmul(here, total, motion.client_lr[:width], value=-1, out=out)
        self.gradient[:width].zero_()
        loss = self.gradients.add_gradient_(here, self.batches.batch(step, busy), self.gradient[:width], want_loss)
        gradient = self.gradient[:width, :busy]
        if self.work.gradient_scale is not None:
            gradient.mul_(self.work.gradient_scale[:width])
        if motion.shift is not None:
            gradient.add_(motion.shift[:width, :busy])
        if motion.pull is not None and step > 0:
            gradient.addcmul_(total, motion.client_lr[:width] * motion.pull[:width], value=-1)
        if self.work.clip_norm is not None:
            clipped_(gradient, self.work.clip_norm[:width])
        if self.gradient_sum is not None:
            self.gradient_sum[:width, :busy].add_(gradient)
        memory = {name: held[:width, :busy] for name, held in self.memory.items()}
        decayed = None if self.decay is None else self.decay[:width] * self._where(here, width, busy)
        if self.optimizer is None:
            total.add_(gradient)
        else:
            whole = width == len(self.total)
            (self.optimizer if whole else self.optimizer.rows(slice(width))).step_(total, memory, gradient, step)
        if decayed is not None:
            total.add_(decayed)
        return loss

    def _where(self, models: Tensor, width: int, busy: int) -> Tensor:
        """The models at which the gradients are taken."""
        offset = self.work.evaluation_offset
        return models if offset is None else models + offset[:width, :busy]

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts sums to gradients (T, M, P)."""
        return sums[0]

    def kept(self, sums: list[Tensor]) -> dict[str, Tensor]:
        """The optimizer's returned memory at each client's last step, and the sums of the gradients, by name.

        Args:
            sums: the sums of `totals`.
        """
        return dict(zip(self.returned, sums[1:], strict=True))
