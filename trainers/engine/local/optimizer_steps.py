"""The local loop for work that needs each gradient by itself: with a client optimizer, or with clipping.

A step takes the gradient, scales it, adds the pulls and the correction, clips, and lets the client optimizer advance
the total U of the models y = start - client_lr U. If there is a single trial with a rate that is not tiny, the models
themselves are moved, and U follows at the end (`Motion.rate`). Plain gradient descent without clipping does not need
this: there U grows by the gradient itself (engine/local/loop.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.engine.local.client_optimizer import STEPS, clipped_
from trainers.engine.local.work import GRADIENTS, LocalWork
from trainers.engine.oracles.frame import Frame, Motion, subtract_
from trainers.engine.oracles.oracle import Batch, LocalGradients, RoundBatches, unset_replicas


class Stepped(Frame):
    """A Frame whose replicas are moved by a client optimizer.

    Args:
        gradients: gradients of the clients.
        batches: batches of the round.
        motion: motion of the models.
        work: the clients' work, with the optimizer (None is gradient descent), clip_norm and gradient_scale.
        total: (T, M, P) for the totals, client-major, overwritten; None allocates it.
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
        self.decay = _decay(work)
        optimizer = work.optimizer
        trials, _, size = motion.start.shape
        moves = optimizer is None or optimizer.moves_models
        self.rate = (
            motion.rate if moves and not (self.decay is not None and work.evaluation_offset is not None) else None
        )
        if total is None:
            total = unset_replicas(motion.start, trials, len(batches.clients), size)
        self.total = total.zero_() if self.rate is None else total.copy_(motion.start)  # U, or the models themselves
        self.gradient: Tensor | None = None
        self.model = torch.empty_like(self.total) if motion.moving and self.rate is None else None
        self.shift = motion.shift
        if self.rate is not None and motion.pull is not None:
            back = motion.pull * motion.start
            self.shift = -back if motion.shift is None else motion.shift - back
        self.optimizer = optimizer
        self.first: int | Tensor = 0
        if work.optimizer_memory is not None:
            self.memory = {name: tensor.clone() for name, tensor in work.optimizer_memory.items()}
            self.first = _first_step(self.memory.pop(STEPS))
        else:
            self.memory = {} if optimizer is None else optimizer.init(self.total)
        answers = {} if optimizer is None else {name: self.memory[name] for name in optimizer.returned}
        if self.rate is not None and optimizer is not None:
            optimizer.begin_(self.memory, motion.start, self.rate)
        separate_sums = optimizer is not None or motion.relative_rates is not None  # gradient sums are not the totals
        self.gradient_sum = torch.zeros_like(self.total) if work.sum_gradients and separate_sums else None
        if self.gradient_sum is not None:
            answers[GRADIENTS] = self.gradient_sum
        self.accumulates = (
            self.rate is not None
            and work.gradient_scale is None
            and work.clip_norm is None
            and self.gradient_sum is None
            and not isinstance(self.first, Tensor)
        )
        self.returned = tuple(answers)
        self.totals = [self.total, *answers.values()]

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the sums by one step; returns the losses if `want_loss`."""
        total, models = self.total[:width, :busy], self._models(step, width, busy)
        memory = {name: tensor[:width, :busy] for name, tensor in self.memory.items()}
        optimizer = self.optimizer
        if optimizer is not None and width < len(self.total):
            optimizer = optimizer.rows(slice(width))
        batch = self.batches.batch(step, busy)
        gradient = optimizer.accumulator_(memory) if self.accumulates and optimizer is not None else None
        if gradient is not None:
            loss = self.gradients.add_gradient_(models, batch, gradient, want_loss)
            self._pull_(gradient, step)
        else:
            gradient, loss = self._own_gradient(models, batch, step, want_loss)
        relative, _ = self.motion.at(step, width)
        rate = (-1.0 if self.rate is None else self.rate) * relative
        decayed = None
        if self.decay is not None:
            if self.rate is not None:
                total.mul_(1 - rate * self.decay)
            else:
                decayed = self.decay[:width] * self._where(models, width, busy)
        if optimizer is None:
            subtract_(total, gradient, rate)
        else:
            first = self.first[:width, :busy] if isinstance(self.first, Tensor) else self.first
            optimizer.step_(total, memory, gradient, first + step, rate)
        if decayed is not None:
            subtract_(total, decayed, rate)
        return loss

    def _own_gradient(self, models: Tensor, batch: Batch, step: int, want_loss: bool) -> tuple[Tensor, Tensor | None]:
        """The gradients (width, busy, P), complete and clipped, and the losses."""
        width, busy = models.shape[0], batch[-1].stop
        if self.gradient is None:
            self.gradient = unset_replicas(self.motion.start, *self.total.shape)
        loss = self.gradients.gradient_(models, batch, self.gradient[:width], want_loss)
        gradient = self.gradient[:width, :busy]
        if self.work.gradient_scale is not None:
            gradient.mul_(self.work.gradient_scale[:width])
        self._pull_(gradient, step)
        if self.work.clip_norm is not None:
            clipped_(gradient, self.work.clip_norm[:width])
        if self.gradient_sum is not None:
            self.gradient_sum[:width, :busy].add_(gradient)
        return gradient, loss

    def _models(self, step: int, width: int, busy: int) -> Tensor:
        """The models before a step."""
        motion, total = self.motion, self.total[:width, :busy]
        if step > 0 and self.rate is not None:
            return total
        start = motion.start[:width, :busy]
        if step == 0 or self.model is None:
            return start
        return torch.addcmul(start, total, motion.client_lr[:width], value=-1, out=self.model[:width, :busy])

    def _pull_(self, gradient: Tensor, step: int) -> None:
        """Adds the shift and the pull to the gradients (width, busy, P)."""
        width, busy, _ = gradient.shape
        pull, total = self.motion.pull, self.total[:width, :busy]
        if self.shift is not None:
            gradient.add_(self.shift[:width, :busy])
        if pull is not None and self.rate is not None:
            gradient.addcmul_(total, pull)
        elif pull is not None and step > 0:
            gradient.addcmul_(total, self.motion.client_lr[:width] * pull[:width], value=-1)

    def _where(self, models: Tensor, width: int, busy: int) -> Tensor:
        """The models at which the gradients are taken."""
        offset = self.work.evaluation_offset
        return models if offset is None else models + offset[:width, :busy]

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts sums to gradients (T, M, P)."""
        return self._sums(sums[0])

    def kept(self, sums: list[Tensor]) -> dict[str, Tensor]:
        """The optimizer's returned memory at each client's last step, and the sums of the gradients, by name.

        Args:
            sums: the sums of `totals`.
        """
        kept = dict(zip(self.returned, sums[1:], strict=True))
        return {name: tensor if name == GRADIENTS else self._sums(tensor) for name, tensor in kept.items()}

    def _sums(self, tensor: Tensor) -> Tensor:
        """U, from a tensor (T, M, P) that holds U, or models start - client_lr U if models are moved; in place."""
        return tensor if self.rate is None else torch.sub(self.motion.start, tensor, out=tensor).div_(self.rate)


def _first_step(steps: Tensor) -> int | Tensor:
    """The steps that clients have taken, (T, M, 1), or one number if all clients of a single trial have taken as many.

    Several trials keep the tensor, so that no trial depends on its neighbours.
    """
    if len(steps) > 1 or not steps.is_cpu or not bool((steps == steps[:, :1]).all()):
        return steps
    return int(steps[0, 0, 0])


def _decay(work: LocalWork) -> Tensor | None:
    """(T, 1, 1) weight decay of the directions; None if there is none."""
    decay = work.weight_decay if work.decoupled else None
    return decay if decay is not None and bool((decay != 0).any()) else None
