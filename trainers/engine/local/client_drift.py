"""Client drift: runs the local loop again and measures how far each model moves away from the broadcast one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from trainers.engine.local.step_plan import last_step
from trainers.engine.local.work import Local, LocalWork
from trainers.engine.oracles.oracle import Batch

Again = Callable[..., Local]
"""`run_local_steps` of a round with all arguments bound except the work and the keyword `observe`."""


def drift(again: Again, params: Tensor, work: LocalWork) -> Tensor:
    """(T, M) mean over each client's local steps of the squared distance of its model from the broadcast one.

    The models after steps 1, ..., K count equally, whatever the gradient weights are.

    Args:
        again: runs the local loop.
        params: (T, 1, P), the broadcast models.
        work: the local work of the round.
    """
    distances: list[Tensor] = []

    def observe(models: Tensor, batch: Batch) -> None:
        gaps = models - params[: models.shape[0]]
        distances.append(gaps.square().sum(-1).expand(-1, batch[-1].stop))

    if work.plan.gradient_weights is not None:
        steps = torch.as_tensor(last_step(work.plan.gradient_weights)).view(-1, 1, 1)
        work = replace(work, plan=replace(work.plan, gradient_weights=None, local_steps=steps))
    done = again(work, observe=observe)
    start = params if work.displacement is None else params + work.displacement
    end = start - work.plan.client_lr * done.pseudo_gradient - params
    counts = torch.as_tensor(np.array(done.steps), device=params.device)
    total = torch.where(counts > 0, end.square().sum(-1), 0)
    for step, squares in enumerate(distances):
        rows, clients = squares.shape
        if step > 0:
            total[:rows, :clients] += torch.where(counts[:rows, :clients] > step, squares, 0)
    return total / counts.clamp(min=1)
