"""The local loop: what every client does between receiving a model and sending its answer.

With U_k the sum of the gradients of the steps before k, a client's model is y_k = start - client_lr U_k. The loop
keeps U, not y: each step makes one pass over the replicas to compute y, and adds the gradient to U in place. So the
pseudo-gradient is exact for every client_lr. A difference of models divided by client_lr would lose all digits as
client_lr goes to 0. Only a trial that is computed alone, with a rate that is not tiny, moves its models and takes that
difference (`Motion.rate`): this saves a pass over the replicas in every step, and is as inexact as model averaging.

The proximal pull and weight decay are linear in U as well: with g_k = grad f(y_k) +
prox (y_k - x) + weight_decay y_k + correction,

    U_{k+1} = (1 - client_lr (prox + weight_decay)) U_k + grad f(y_k)
              + prox (start - x) + weight_decay start + correction

and weighted sums follow by Abel summation, sum_k theta_k g_k = sum_k (theta_k - theta_{k+1}) U_{k+1} with theta 0 after
the last step. Only steps at which neighbouring weights differ need a pass.

With a gradient_scale s, steps along s (grad f + weight_decay y) + correction with rate client_lr equal steps along
grad f + weight_decay y + correction / s with rate s client_lr, and the first sum is s times the second. So gradients
are still added in place.

With relative rates r (StepPlan) every gradient is multiplied by the r of its step before it is added. U is then the sum
of r_k g_k, and all of the above holds.

With a client optimizer U_k is the sum of its directions d_1, ..., d_{k-1}, and with clipping the sum of clipped
gradients (engine/local/optimizer_steps.py). The models are again start - client_lr U, and the pseudo-gradient,
(start - end) / client_lr with all weights 1, is exact for every client_lr.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from trainers.engine.batches.examples import Remembered
from trainers.engine.local.client_optimizer import STEPS, rows_of
from trainers.engine.local.descent import Descent
from trainers.engine.local.gradients import Observe, displaced, less_anchor, observed
from trainers.engine.local.optimizer_steps import Stepped
from trainers.engine.local.replicas import Replicas
from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.weighted_sums import WeightedSums
from trainers.engine.local.work import Local, LocalWork
from trainers.engine.oracles.frame import Frame, Motion
from trainers.engine.oracles.oracle import LocalGradients, RoundBatches, replicas, unset_replicas

_LEAST_RATE = 1e-3  # in single precision, models of size 1 then give gradients to 6e-5
_TILE = 4  # trials; widths of products shrink by whole tiles, so that a trial's row always uses the same kernels


def run_local_steps(
    gradients: LocalGradients,
    batches: RoundBatches,
    params: Tensor,
    work: LocalWork,
    alive: NDArray[np.bool_],
    observe: Observe | None = None,
) -> Local:
    """Runs the local loop of all clients of all trials.

    Args:
        gradients: gradients of the clients' losses, usually an oracle.
        batches: batches of the round.
        params: (T, 1, P), the broadcast models.
        work: what the clients do.
        alive: (T,) mask of running trials. The others take no steps and their results are undefined.
        observe: called with the models of every step, for a report.
    """
    if work.gradient_scale is None or _gradient_by_gradient(work):
        return _run(gradients, batches, params, work, alive, observe)
    matters = observe is not None or work.correction is not None
    vanishes = matters and bool((work.gradient_scale == 0).any())
    if vanishes and observe is not None:  # below, the models of a trial with scale 0 would stay at the start
        return _run(gradients, batches, params, work, alive, observe)
    # The scale moves into the rate (module docstring). If the scale is 0, only the correction is left.
    scale = torch.where(work.gradient_scale > 0, work.gradient_scale, 1)
    correction = None if work.correction is None else work.correction / scale
    plan = replace(work.plan, client_lr=work.gradient_scale * work.plan.client_lr)
    inner = replace(work, plan=plan, correction=correction, gradient_scale=None)
    done = _run(gradients, batches, params, inner, alive, observe)
    total = work.gradient_scale * done.pseudo_gradient
    if correction is not None and vanishes:
        sums = work.plan.relative_sums(done.steps, total)
        total = torch.where(work.gradient_scale > 0, total, sums * correction)
    return replace(done, lift=lambda: total, average=None)


def _gradient_by_gradient(work: LocalWork) -> bool:
    """Whether every step needs its gradient by itself.

    True with an optimizer, clipping, a scale beside prox or gradient weights, or `sum_gradients` beside relative rates.
    """
    scaled = work.gradient_scale is not None and (work.prox is not None or work.plan.gradient_weights is not None)
    summed = work.sum_gradients and work.plan.relative_rates is not None
    return work.optimizer is not None or work.clip_norm is not None or scaled or summed


def _run(
    gradients: LocalGradients,
    batches: RoundBatches,
    params: Tensor,
    work: LocalWork,
    alive: NDArray[np.bool_],
    observe: Observe | None = None,
    total: Tensor | None = None,
) -> Local:
    """The loop itself. `total` (T, M, P), client-major, holds the pseudo-gradients afterwards if that saves a copy."""
    trials, clients = params.shape[0], len(batches.clients)
    if trials > 1 and gradients.separate and observe is None:
        return _one_by_one(gradients, batches, params, work, alive)
    planned, limits = work.plan.planned(batches), work.plan.limits(batches)
    if limits is not None:
        planned = np.minimum(planned, limits.max(-1))
    member_steps = np.where(alive, planned, 0)
    longest = int(member_steps.max(initial=0))
    stops_differ = limits is not None and limits.ndim == 2  # a client may stop in one trial and go on in another
    client_steps = limits.max(0) if limits is not None and stops_differ else limits
    batches.prepare(longest, client_steps)

    frame = _frame(_terms(gradients, work, observe), batches, params, work, longest, total, stops_differ)
    widths = _widths(planned)  # of all trials, also finished ones: a trial must not depend on its neighbours
    own_steps = np.minimum(member_steps[:, None], limits) if limits is not None and stops_differ else None
    weigh = WeightedSums(work.plan.gradient_weights, member_steps, frame.totals, own_steps)
    lasting = frame.memory if isinstance(frame, Stepped) and work.optimizer_memory is not None else {}
    ends = WeightedSums(None, member_steps, list(lasting.values()), own_steps)
    first_loss = params.new_empty((0, clients))
    busy = [clients] * (longest + 1)
    if client_steps is not None:
        busy = np.searchsorted(-client_steps, -np.arange(longest + 1)).tolist()
    if isinstance(frame, Descent) and gradients.client_by_client:
        first_loss = frame.take_steps(busy[:longest])
    else:
        for step in range(longest):
            loss = frame.add_(step, widths[step], busy[step], want_loss=step == 0)
            if loss is not None:
                first_loss = loss
            weigh.after(step, widths[step + 1], busy[step + 1])
            ends.after(step, widths[step + 1], busy[step + 1])
    steps = np.repeat(member_steps, clients).reshape(trials, clients)
    if limits is not None:
        steps = np.minimum(steps, limits)
    if len(first_loss) < trials:  # trials without a step have no loss
        first_loss = pad(first_loss, (0, 0, 0, trials - len(first_loss)), value=float("nan"))
    sums = weigh.result()
    kept = frame.kept(sums) if isinstance(frame, Stepped) else {}
    memory = None
    if work.optimizer_memory is not None:
        before = work.optimizer_memory[STEPS]
        memory = dict(zip(lasting, ends.result(), strict=True))
        memory[STEPS] = before + torch.as_tensor(steps, device=before.device).unsqueeze(-1)
    return Local(partial(frame.lift, sums), steps, first_loss, kept, partial(frame.mean, sums), memory)


def _terms(gradients: LocalGradients, work: LocalWork, observe: Observe | None) -> LocalGradients:
    """The gradients, taken at the points that the work asks for."""
    if work.anchor is not None:
        gradients = less_anchor(gradients, work.anchor)
    if work.evaluation_offset is not None:
        gradients = displaced(gradients, work.evaluation_offset)
    return gradients if observe is None else observed(gradients, observe)


def _frame(
    gradients: LocalGradients,
    batches: RoundBatches,
    params: Tensor,
    work: LocalWork,
    longest: int,
    total: Tensor | None,
    stops_differ: bool,
) -> Frame:
    """The oracle's own frame if it has one for this work, else replicas of the model.

    `stops_differ`: whether a client stops at different steps in different trials, whose sums must then lie apart.
    """
    start = params if work.displacement is None else params + work.displacement
    pull, shift = _pulls(work, params, start)
    plan = work.plan
    moving = longest > 1 and plan.moves
    rate = _rate(plan, start) if moving else None
    motion = Motion(start, plan.client_lr, pull, shift, moving, longest, rate, plan.relative_rates)
    if work.gradient_scale is not None or _gradient_by_gradient(work):
        return Stepped(gradients, batches, motion, work, total)
    frame = None if stops_differ else gradients.frame(batches, motion)
    if frame is None and motion.rate is not None and gradients.descends:
        return Descent(gradients, batches, motion, total)
    return Replicas(gradients, batches, motion, total) if frame is None else frame


def _rate(plan: StepPlan, start: Tensor) -> float | None:
    """client_lr of a single trial whose models may be moved (Motion.rate), because the rate is not tiny; else None."""
    if start.shape[0] > 1 or not start.is_cpu or plan.gradient_weights is not None:
        return None
    return float(plan.client_lr) if plan.largest_rate >= _LEAST_RATE else None


def _pulls(work: LocalWork, params: Tensor, start: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """(pull to the start, constant) of each gradient; None for a term that is 0."""
    decay = work.weight_decay if work.decays else None
    if decay is not None and work.gradient_scale is not None:
        decay = work.gradient_scale * decay
    constants = [] if work.correction is None else [work.correction]
    pull: Tensor | None = None
    if work.prox is not None and bool(work.prox.any()):
        pull = work.prox
        if work.displacement is not None:
            constants.append(work.prox * (start - params))
    if decay is not None:
        pull = decay if pull is None else pull + decay
        if work.anchor is not start:
            constants.append(decay * (start if work.anchor is None else start - work.anchor))
        if work.evaluation_offset is not None:
            constants.append(decay * work.evaluation_offset)
    return pull, sum(constants[1:], constants[0]) if constants else None


def _one_by_one(
    gradients: LocalGradients, batches: RoundBatches, params: Tensor, work: LocalWork, alive: NDArray[np.bool_]
) -> Local:
    """Runs the trials one after another, for oracles that gain nothing from stacking them: a trial stays in the cache.

    Trials that have diverged, and steps after a trial's last one, cost nothing.
    """
    trials, clients = params.shape[0], len(batches.clients)
    answer = unset_replicas(params, trials, clients, params.shape[-1])
    steps = np.zeros((trials, clients), np.int64)
    loss = params.new_full((trials, clients), float("nan"))
    kept: dict[str, Tensor] = {}
    memory = work.optimizer_memory
    after = {name: tensor.clone() for name, tensor in (memory or {}).items()}
    shared = Remembered(batches)
    values = {item.name: getattr(work, item.name) for item in fields(work)}
    done: dict[int, Local] = {}
    for row in np.flatnonzero(alive).tolist():
        rows = slice(row, row + 1)
        trial_work: dict[str, Any] = {
            name: value[rows]
            for name, value in values.items()
            if isinstance(value, Tensor) and value.shape[0] == trials
        }
        trial_work["plan"] = rows_of(work.plan, rows)
        if work.optimizer is not None:
            trial_work["optimizer"] = work.optimizer.rows(rows)
        if memory is not None:
            trial_work["optimizer_memory"] = {name: tensor[rows] for name, tensor in memory.items()}
        done[row] = _run(gradients, shared, params[rows], replace(work, **trial_work), alive[rows], total=answer[rows])
        steps[rows], loss[rows] = done[row].steps, done[row].first_loss
        for name, tensor in done[row].kept.items():
            kept.setdefault(name, replicas(params, *answer.shape))[row] = tensor[0]
        for name, tensor in (done[row].optimizer_memory or {}).items():
            after[name][row] = tensor[0]

    def lift() -> Tensor:
        for row in range(trials):
            gradient = done[row].pseudo_gradient if row in done else params.new_zeros(())
            if gradient.data_ptr() != answer[row].data_ptr():
                answer[row] = gradient
        return answer

    def average(weights: Tensor) -> Tensor:
        mean = torch.zeros_like(params)
        for row, result in done.items():
            mean[row] = result.mean(weights)[0]
        return mean

    return Local(lift, steps, loss, kept, average, None if memory is None else after)


def _widths(member_steps: NDArray[np.int64]) -> list[int]:
    """For each step, how many of the first trials take part: a multiple of the tile, or all; 0 after the last step."""
    widths: list[int] = []
    for row, count in reversed(list(enumerate(member_steps.tolist()))):
        tiles = row // _TILE + 1
        widths += [min(tiles * _TILE, len(member_steps))] * (count - len(widths))
    return [*widths, 0]
