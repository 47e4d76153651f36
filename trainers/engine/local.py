"""The local loop: what every client does between receiving a model and sending its answer.

With U_k the sum of the gradients of the steps before k, a client's model is y_k = start - client_lr U_k. The loop
keeps U, not y: one pass over the replicas a step makes y, and the gradient is added to U in place. So the
pseudo-gradient is exact for every client_lr, 0 included, where a difference of models divided by client_lr loses all
digits. The proximal pull and weight decay are linear in U as well: with g_k = grad f(y_k) + prox (y_k - x) +
weight_decay y_k + correction,

    U_{k+1} = (1 - client_lr (prox + weight_decay)) U_k + grad f(y_k)
              + prox (start - x) + weight_decay start + correction

and weighted sums follow by Abel summation, sum_k theta_k g_k = sum_k (theta_k - theta_{k+1}) U_{k+1} with theta 0 after
the last step: a pass is needed only where neighbouring weights differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.oracle import Oracle, RoundBatches, replicas

_TILE = 4  # trials; widths of products shrink by whole tiles, so that rows of the same trial meet the same kernels


@dataclass(frozen=True)
class LocalWork:
    """What the clients of a round do; shapes broadcast against (T, M, P).

    Args:
        client_lr: (T, 1, 1), at least 0; 0 takes all gradients at the start.
        local_steps: (T, 1, 1) integers, at least 1; None where gradient_weights or local_epochs say it.
        gradient_weights: (T, K), rows padded with zeros; the last positive one is the last step. None is all ones.
        prox: (T, 1, 1) pull to the broadcast model; None is 0.
        weight_decay: (T, 1, 1) pull to 0; None is 0.
        displacement: (T, M, P) added to where a client starts; None is 0.
        correction: (T, 1 or M, P) added to every local gradient; None is 0.
        local_epochs: passes over each client's own data, instead of local_steps, with all weights 1.
    """

    client_lr: Tensor
    local_steps: Tensor | None = None
    gradient_weights: Tensor | None = None
    prox: Tensor | None = None
    weight_decay: Tensor | None = None
    displacement: Tensor | None = None
    correction: Tensor | None = None
    local_epochs: int | None = None


@dataclass(frozen=True)
class Local:
    """What came of the local work.

    Args:
        pseudo_gradient: (T, M, P) weighted sum of each client's local gradients, not multiplied by client_lr.
        steps: (T, M) gradients that each client took.
        first_loss: (T, M) losses of the starting models on the first batches.
    """

    pseudo_gradient: Tensor
    steps: NDArray[np.int64]
    first_loss: Tensor


def last_step_only(local_steps: Tensor) -> Tensor:
    """The gradient weights 0, ..., 0, 1 of first-order MAML, (T, largest number of steps).

    Args:
        local_steps: (T, 1, 1) integers, at least 1.
    """
    last = local_steps.view(-1, 1) - 1
    return (torch.arange(int(last.max()) + 1) == last).to(torch.float64)


def run(oracle: Oracle, batches: RoundBatches, params: Tensor, work: LocalWork, alive: NDArray[np.bool_]) -> Local:
    """Runs the local loop of all clients of all trials.

    Args:
        oracle: of the model.
        batches: of the round.
        params: (T, 1, P), the broadcast models.
        work: what to do.
        alive: (T,); trials that are not get no steps, and numbers without meaning.
    """
    trials, clients = params.shape[0], len(batches.clients)
    member_steps, client_steps = _steps(work, batches, trials)
    member_steps = np.where(alive, member_steps, 0)
    longest = int(member_steps.max(initial=0))
    batches.prepare(longest)

    start = params if work.displacement is None else params + work.displacement
    total = replicas(params, trials, clients, params.shape[-1])
    moving = bool((work.client_lr != 0).any())
    model = torch.empty_like(total) if moving and longest > 1 else None
    scale, shift = _pulls(work, params, start)
    weigh = _Weights(work.gradient_weights, member_steps, total)

    first_loss = total.new_full((trials, clients), float("nan"))
    for step in range(longest):
        width = _prefix(member_steps, step)
        busy = int(np.searchsorted(-client_steps, -step)) if client_steps is not None else clients
        held, lr, here = total[:width, :busy], work.client_lr[:width], start[:width]
        if start.shape[1] > 1:
            here = here[:, :busy]
        if step > 0:
            if model is not None:
                here = torch.addcmul(here, held, lr, value=-1, out=model[:width, :busy])
            if scale is not None:
                held.mul_(scale[:width])
        if shift is not None:
            held.add_(shift[:width] if shift.shape[1] == 1 else shift[:width, :busy])
        loss = oracle.add_gradient_(here, batches.batch(step, busy), total[:width], want_loss=step == 0)
        if loss is not None:
            first_loss[:width] = loss
        weigh.after(step, _prefix(member_steps, step + 1))
    steps = np.broadcast_to(member_steps[:, None], (trials, clients))
    if client_steps is not None:
        steps = np.minimum(steps, client_steps)
    return Local(weigh.result(), steps, first_loss)


class _Weights:
    """The weighted sum of gradients, gathered from their running sums.

    Args:
        gradient_weights: (T, K) or None.
        member_steps: (T,).
        total: the running sums, replicas (T, M, P) that the loop changes.
    """

    def __init__(self, gradient_weights: Tensor | None, member_steps: NDArray[np.int64], total: Tensor) -> None:
        self.member_steps = member_steps
        self.total = total
        self.finished: dict[int, Tensor] = {}
        self.sum: Tensor | None = None
        if gradient_weights is None:
            return
        theta = gradient_weights.to(device="cpu", dtype=torch.float64).numpy()
        used = np.arange(theta.shape[1]) < member_steps[:, None]
        theta = np.pad(np.where(used, theta, 0.0), ((0, 0), (0, 1)))
        if (theta[:, :-1] == used).all():
            return  # all ones: the running sum is the answer
        self.jumps = np.where(used, theta[:, :-1] - theta[:, 1:], 0.0)
        self.factors = torch.as_tensor(self.jumps, dtype=total.dtype, device=total.device)[:, :, None, None]
        self.sum = torch.zeros_like(total)

    def after(self, step: int, next_width: int) -> None:
        """Takes note of the running sums after a step, before rows that are done are written over."""
        if self.sum is not None:
            rows = np.flatnonzero(self.jumps[:, step])
            if len(rows):
                low, high = int(rows[0]), int(rows[-1]) + 1
                self.sum[low:high].addcmul_(self.total[low:high], self.factors[low:high, step])
            return
        for row in np.flatnonzero(self.member_steps[:next_width] == step + 1):
            self.finished[int(row)] = self.total[int(row)].clone()

    def result(self) -> Tensor:
        """(T, M, P), client-major."""
        if self.sum is not None:
            return self.sum
        for row, held in self.finished.items():
            self.total[row] = held
        return self.total


def _steps(work: LocalWork, batches: RoundBatches, trials: int) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """((T,) largest number of steps of each trial, (M,) limits of the clients or None)."""
    if work.local_epochs is not None:
        if work.local_steps is not None or work.gradient_weights is not None:
            raise ValueError("local_epochs must be the only one of local_steps, gradient_weights and local_epochs")
        limits = batches.epoch_steps(work.local_epochs)
        return np.full(trials, limits.max()), limits
    if work.gradient_weights is not None:
        positive = work.gradient_weights.cpu().numpy() > 0
        return positive.shape[1] - positive[:, ::-1].argmax(1), None
    if work.local_steps is None:
        raise ValueError("one of local_steps, gradient_weights and local_epochs must be given, got none")
    return work.local_steps.cpu().numpy().reshape(-1), None


def _pulls(work: LocalWork, params: Tensor, start: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """(factor on the running sum, constant added to it) of each step; None where they change nothing."""
    pull: Tensor | None = None
    shift = work.correction
    for strength, origin in ((work.prox, params), (work.weight_decay, None)):
        if strength is None or not bool((strength != 0).any()):
            continue
        pull = strength if pull is None else pull + strength
        if origin is None or work.displacement is not None:
            constant = strength * (start if origin is None else start - origin)
            shift = constant if shift is None else shift + constant
    return (None if pull is None else 1 - work.client_lr * pull), shift


def _prefix(member_steps: NDArray[np.int64], step: int) -> int:
    """How many of the first trials must take part in a step; a multiple of the tile, or all."""
    rows = np.flatnonzero(member_steps > step)
    if not len(rows):
        return 0
    return min(-(-(int(rows[-1]) + 1) // _TILE) * _TILE, len(member_steps))
