"""The local loop where gradients must be had one by one: with a client optimizer, or with their norms clipped.

A step takes the gradient alone, adds the pulls and the correction, clips, and lets the client optimizer move the total
U of the models y = start - client_lr U. With plain gradient descent and no clipping U grows by the gradient itself and
nothing of this is needed (engine/local/loop.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.engine.local.client_optimizer import ClientOptimizer, clipped_
from trainers.engine.oracles.frame import Motion
from trainers.engine.oracles.oracle import Oracle, RoundBatches, replicas


class Stepped:
    """A Frame of the local loop, of replicas that are moved by a client optimizer.

    Args:
        oracle: of the model.
        batches: of the round.
        motion: of the models; its pull stands for its scale.
        optimizer: None is gradient descent.
        clip_norm: (T, 1, 1), of every gradient; None is no clipping.
        decay: (T, 1, 1), weight decay beside the gradients; None is none.
        total: (T, M, P) zeros to keep the totals in, client-major; None makes them.
    """

    def __init__(
        self,
        oracle: Oracle,
        batches: RoundBatches,
        motion: Motion,
        optimizer: ClientOptimizer | None,
        clip_norm: Tensor | None,
        decay: Tensor | None,
        total: Tensor | None = None,
    ) -> None:
        self.oracle = oracle
        self.batches = batches
        self.motion = motion
        self.clip_norm = clip_norm
        self.decay = decay
        trials, _, size = motion.start.shape
        self.total = replicas(motion.start, trials, len(batches.clients), size) if total is None else total
        self.gradient = torch.empty_like(self.total)
        self.model = torch.empty_like(self.total) if motion.moving else None
        self.optimizer = optimizer
        self.memory = {} if optimizer is None else optimizer.init(self.total)
        self.returned = () if optimizer is None else optimizer.returned
        self.totals = [self.total, *(self.memory[name] for name in self.returned)]

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """See Frame."""
        motion = self.motion
        total, here = self.total[:width, :busy], motion.start[:width, :busy]
        if step > 0 and self.model is not None:
            out = self.model[:width, :busy]
            here = torch.addcmul(here, total, motion.client_lr[:width], value=-1, out=out)
        self.gradient[:width].zero_()
        loss = self.oracle.add_gradient_(here, self.batches.batch(step, busy), self.gradient[:width], want_loss)
        gradient = self.gradient[:width, :busy]
        if motion.shift is not None:
            gradient.add_(motion.shift[:width, :busy])
        if motion.pull is not None and step > 0:
            gradient.addcmul_(total, motion.client_lr[:width] * motion.pull[:width], value=-1)
        if self.clip_norm is not None:
            clipped_(gradient, self.clip_norm[:width])
        memory = {name: held[:width, :busy] for name, held in self.memory.items()}
        decayed = None if self.decay is None else self.decay[:width] * here
        if self.optimizer is None:
            total.add_(gradient)
        else:
            whole = width == len(self.total)
            (self.optimizer if whole else self.optimizer.rows(slice(width))).step_(total, memory, gradient, step)
        if decayed is not None:
            total.add_(decayed)
        return loss

    def lift(self, sums: list[Tensor]) -> Tensor:
        """See Frame."""
        return sums[0]

    def kept(self, sums: list[Tensor]) -> dict[str, Tensor]:
        """What the optimizer remembers at each client's last step, of what it returns.

        Args:
            sums: of `totals`.
        """
        return dict(zip(self.returned, sums[1:], strict=True))
