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

With a client optimizer U_k is the sum of its directions d_1, ..., d_{k-1}, and with clipping that of clipped gradients
(engine/local/optimizer_steps.py): the models are start - client_lr U again, and the pseudo-gradient,
(start - end) / client_lr with all weights 1, is exact for every client_lr.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.batches.examples import Remembered
from trainers.engine.local.client_optimizer import ClientOptimizer
from trainers.engine.local.optimizer_steps import Stepped
from trainers.engine.local.replicas import Replicas
from trainers.engine.local.weighted_sums import WeightedSums
from trainers.engine.oracles.frame import Frame, Motion
from trainers.engine.oracles.oracle import Oracle, RoundBatches, replicas

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
        optimizer: turns local gradients into steps; None is gradient descent. With it the weighted sums are of its
            directions.
        clip_norm: (T, 1, 1) largest L2 norm of a local gradient after all pulls and corrections; None is no clipping.
    """

    client_lr: Tensor
    local_steps: Tensor | None = None
    gradient_weights: Tensor | None = None
    prox: Tensor | None = None
    weight_decay: Tensor | None = None
    displacement: Tensor | None = None
    correction: Tensor | None = None
    local_epochs: int | None = None
    optimizer: ClientOptimizer | None = None
    clip_norm: Tensor | None = None


@dataclass(frozen=True)
class Local:
    """What came of the local work.

    Args:
        pseudo_gradient: (T, M, P) weighted sum of each client's local gradients, not multiplied by client_lr.
        steps: (T, M) gradients that each client took.
        first_loss: (T, M) losses of the starting models on the first batches.
        kept: (T, M, P) each, what the client optimizer returns of what it remembers, at each client's last step.
    """

    pseudo_gradient: Tensor
    steps: NDArray[np.int64]
    first_loss: Tensor
    kept: Mapping[str, Tensor] = field(default_factory=dict)


def last_step_only(local_steps: Tensor) -> Tensor:
    """The gradient weights 0, ..., 0, 1 of first-order MAML, (T, largest number of steps).

    Args:
        local_steps: (T, 1, 1) integers, at least 1.
    """
    last = local_steps.view(-1, 1) - 1
    return (torch.arange(int(last.max()) + 1) == last).to(torch.float64)


def last_step(gradient_weights: Tensor) -> NDArray[np.int64]:
    """(T,) steps of local work with such weights: the number of the last one above 0.

    Args:
        gradient_weights: (T, K), at least 0.
    """
    positive = gradient_weights.cpu().numpy() > 0
    return np.asarray(positive.shape[1] - positive[:, ::-1].argmax(1))


def run_local_steps(
    oracle: Oracle,
    batches: RoundBatches,
    params: Tensor,
    work: LocalWork,
    alive: NDArray[np.bool_],
    total: Tensor | None = None,
) -> Local:
    """Runs the local loop of all clients of all trials.

    Args:
        oracle: of the model.
        batches: of the round.
        params: (T, 1, P), the broadcast models.
        work: what to do.
        alive: (T,); trials that are not get no steps, and numbers without meaning.
        total: (T, M, P) zeros, client-major, which the pseudo-gradients are put into where that spares a copy.
    """
    trials, clients = params.shape[0], len(batches.clients)
    if trials > 1 and oracle.separate:
        return _one_by_one(oracle, batches, params, work, alive)
    planned, client_steps = _steps(work, batches, trials)
    member_steps = np.where(alive, planned, 0)
    longest = int(member_steps.max(initial=0))
    batches.prepare(longest)

    frame = _frame(oracle, batches, params, work, longest, total)
    widths = _widths(planned)  # trials at rest count: nobody else may see them stop
    weigh = WeightedSums(work.gradient_weights, member_steps, frame.totals)
    first_loss = params.new_full((trials, clients), float("nan"))
    for step in range(longest):
        busy = int(np.searchsorted(-client_steps, -step)) if client_steps is not None else clients
        loss = frame.add_(step, widths[step], busy, want_loss=step == 0)
        if loss is not None:
            first_loss[: widths[step]] = loss
        weigh.after(step, widths[step + 1])
    steps = np.broadcast_to(member_steps[:, None], (trials, clients))
    if client_steps is not None:
        steps = np.minimum(steps, client_steps)
    sums = weigh.result()
    kept = frame.kept(sums) if isinstance(frame, Stepped) else {}
    return Local(frame.lift(sums), steps, first_loss, kept)


def _frame(
    oracle: Oracle, batches: RoundBatches, params: Tensor, work: LocalWork, longest: int, total: Tensor | None
) -> Frame:
    """The oracle's own frame where it has one for this work, else replicas of the model."""
    start = params if work.displacement is None else params + work.displacement
    decoupled = work.optimizer is not None and work.optimizer.decoupled
    pull, shift = _pulls(replace(work, weight_decay=None) if decoupled else work, params, start)
    moving = longest > 1 and bool((work.client_lr != 0).any())
    scale = None if pull is None else 1 - work.client_lr * pull
    motion = Motion(start, work.client_lr, scale, shift, moving, pull)
    if work.optimizer is not None or work.clip_norm is not None:
        decay = work.weight_decay if decoupled else None
        return Stepped(oracle, batches, motion, work.optimizer, work.clip_norm, decay, total)
    frame = oracle.frame(batches, motion)
    return Replicas(oracle, batches, motion, total) if frame is None else frame


def _steps(work: LocalWork, batches: RoundBatches, trials: int) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """((T,) largest number of steps of each trial, (M,) limits of the clients or None)."""
    if work.local_epochs is not None:
        if work.local_steps is not None or work.gradient_weights is not None:
            raise ValueError("local_epochs must be the only one of local_steps, gradient_weights and local_epochs")
        limits = batches.epoch_steps(work.local_epochs)
        return np.full(trials, limits.max()), limits
    if work.gradient_weights is not None:
        return last_step(work.gradient_weights), None
    if work.local_steps is None:
        raise ValueError("one of local_steps, gradient_weights and local_epochs must be given, got none")
    return work.local_steps.cpu().numpy().reshape(-1), None


def _pulls(work: LocalWork, params: Tensor, start: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """(pull to where it all starts, constant) of each gradient; None where they change nothing."""
    pull: Tensor | None = None
    shift = work.correction
    for strength, origin in ((work.prox, params), (work.weight_decay, None)):
        if strength is None or not bool((strength != 0).any()):
            continue
        pull = strength if pull is None else pull + strength
        if origin is None or work.displacement is not None:
            constant = strength * (start if origin is None else start - origin)
            shift = constant if shift is None else shift + constant
    return pull, shift


def _one_by_one(
    oracle: Oracle, batches: RoundBatches, params: Tensor, work: LocalWork, alive: NDArray[np.bool_]
) -> Local:
    """The same trial by trial, for oracles to which it is all one: the models of a trial stay near the processor.

    Trials at rest and steps beyond a trial's own cost nothing.
    """
    trials, clients = params.shape[0], len(batches.clients)
    answer = replicas(params, trials, clients, params.shape[-1])
    steps = np.zeros((trials, clients), np.int64)
    loss = params.new_full((trials, clients), float("nan"))
    kept: dict[str, Tensor] = {}
    shared = Remembered(batches)
    values = {item.name: getattr(work, item.name) for item in fields(work)}
    for row in np.flatnonzero(alive).tolist():
        one = slice(row, row + 1)
        own: dict[str, Any] = {
            name: held[one] for name, held in values.items() if isinstance(held, Tensor) and held.shape[0] == trials
        }
        if work.optimizer is not None:
            own["optimizer"] = work.optimizer.rows(one)
        done = run_local_steps(oracle, shared, params[one], replace(work, **own), alive[one], answer[one])
        steps[one], loss[one] = done.steps, done.first_loss
        if done.pseudo_gradient.data_ptr() != answer[one].data_ptr():
            answer[one] = done.pseudo_gradient
        for name, held in done.kept.items():
            kept.setdefault(name, torch.zeros_like(answer))[one] = held
    return Local(answer, steps, loss, kept)


def _widths(member_steps: NDArray[np.int64]) -> list[int]:
    """How many of the first trials must take part in each step, multiples of the tile or all; 0 after the last."""
    busy = member_steps > np.arange(member_steps.max(initial=0) + 1)[:, None]
    count = len(member_steps)
    last = np.where(busy.any(1), count - busy[:, ::-1].argmax(1), 0)
    return [int(width) for width in np.minimum(-(-last // _TILE) * _TILE, count)]
