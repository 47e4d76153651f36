"""The frame of a trial whose oracle takes steps itself: it moves the models, and no running sums are kept."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainers.engine.oracles.frame import Frame, Motion
from trainers.engine.oracles.oracle import Batch, LocalGradients, StepBatches, unset_replicas

_BATCH_BYTES = 1 << 25  # of the batches of a client before the next client starts, unless one step needs more


class Descent(Frame):
    """A Frame whose total is the clients' models y; sums are U = (start - y) / client_lr.

    A step with relative rate r is y <- y - client_lr r (gradient + shift + pull (y - start)), in at most one pass over
    y besides the products of the gradient.

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
        self.motion = motion
        self.rate = motion.rate
        self.start = motion.start
        shape = 1, len(batches.clients), motion.start.shape[-1]
        self.models = unset_replicas(motion.start, *shape) if total is None else total
        self.totals = [self.models]
        self.lifted = False
        self.scale = None if motion.scale is None else float(motion.scale)
        constant = None if motion.shift is None else motion.shift * -self.rate
        if self.scale is not None:
            pulled = motion.start * (1 - self.scale)
            constant = pulled if constant is None else constant + pulled
        self.constant = None if constant is None else constant.expand_as(self.models)

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the models by one step; returns the losses if `want_loss`."""
        if step == 0:
            self.models.copy_(self.start)
        return self._step(step, slice(busy), self.batches.batch(step, busy), want_loss)

    def take_steps(self, busy: Sequence[int]) -> Tensor:
        """Takes all steps, one client after another, so that a client's model stays in the cache, and lifts the models.

        Args:
            busy: for each step, how many of the first clients take part.

        Returns:
            (1, busy[0]) losses before the first step.
        """
        losses = self.models.new_empty((1, busy[0]))
        self.models[:, busy[0] :].zero_()
        self.lifted = True
        step = 0
        while step < len(busy):
            batches = self._batches(step, busy)
            last = step + len(batches)
            for client in range(busy[step]):
                clients = slice(client, client + 1)
                models = self.models[:, clients]
                if step == 0:
                    models.copy_(self._start(clients))
                with self.gradients.at(models):
                    for number, batch in enumerate(batches, step):
                        if client < busy[number]:
                            group = next(group for group in batch if client < group.stop)
                            loss = self._step(number, clients, (group.alone(client),), want_loss=number == 0)
                            if loss is not None:
                                losses[:, client] = loss[:, 0]
                if last == len(busy) or client >= busy[last]:
                    self._lift(models, self._start(clients))
            step = last
        return losses

    def _batches(self, step: int, busy: Sequence[int]) -> list[Batch]:
        """The batches of the steps from `step`: at least one, and as many as fit."""
        batches: list[Batch] = []
        room = _BATCH_BYTES
        while step < len(busy) and room > 0:
            batches.append(self.batches.batch(step, busy[step]))
            room -= sum(tensor.nbytes for group in batches[-1] for tensor in group.data.values())
            step += 1
        return batches

    def _step(self, step: int, clients: slice, batch: Batch, want_loss: bool) -> Tensor | None:
        """Advances the models of neighbouring clients by one step on their batch."""
        models, scale, client_lr = self.models[:, clients], self.scale, self.motion.client_lr
        constant = None if self.constant is None else self.constant[:, clients]
        if self.motion.relative_rates is not None:
            relative = self.motion.relative(step)
            client_lr = relative * client_lr
            scale = None if scale is None else 1 - relative * (1 - scale)
            constant = None if constant is None else relative * constant

        def pull_(part: slice) -> None:
            assert constant is not None
            if scale is None:
                models[:, part].add_(constant[:, part])
            else:
                torch.add(constant[:, part], models[:, part], alpha=scale, out=models[:, part])

        between = None if constant is None else pull_
        return self.gradients.descend_(models, batch, client_lr, between, want_loss)

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts models to gradients (1, M, P)."""
        return sums[0] if self.lifted else self._lift(sums[0], self.start)

    def _lift(self, models: Tensor, start: Tensor) -> Tensor:
        return torch.sub(start, models, out=models).div_(self.rate)

    def _start(self, clients: slice) -> Tensor:
        """The models of some clients before the first step."""
        return self.start if self.start.shape[1] == 1 else self.start[:, clients]
