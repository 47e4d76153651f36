"""Exact gradients through local training, as MAML needs them.

With y_1 = x and y_{k+1} = y_k - client_lr (grad f(y_k) + weight_decay y_k + prox (y_k - x)), k = 1 .. K, the gradient
of f(y_{K+1}) with respect to x is computed backwards, by Hessian-vector products along the path. client_lr is the rate
of step k where the plan has rates of the steps:

    v = grad f(y_{K+1}) + weight_decay y_{K+1},   u = 0
    for k = K .. 1:   u <- u + client_lr prox v,   v <- v - client_lr (H(y_k) v + weight_decay v + prox v)
    the gradient is v + u

The path is stored, (K, T, M, P), not a graph. Trials with fewer steps wait at the end of their path. Models and v
change in place, without copies of gradients or products.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.batches.examples import Remembered
from trainers.engine.local.client_optimizer import rows_of
from trainers.engine.local.work import Local, LocalWork
from trainers.engine.oracles.oracle import Oracle, RoundBatches, replicas

PRODUCT_COST = 2  # gradients that a Hessian-vector product counts as


def run_meta_gradients(
    oracle: Oracle, batches: RoundBatches, params: Tensor, work: LocalWork, alive: NDArray[np.bool_], unbiased: bool
) -> Local:
    """The gradients of all clients of all trials; `steps` of the result are their cost, in gradients.

    Step k (from 0) and the gradient after the last step use batch k, for the Hessian too. With `unbiased`, gradients
    use the even batches and each Hessian uses the odd batch after its gradient's batch.

    Args:
        oracle: oracle of the model.
        batches: batches of the round.
        params: (T, 1, P), the broadcast models.
        work: plan with local_steps, prox and weight_decay.
        alive: (T,) mask of running trials. The results of the others are undefined.
        unbiased: independent batches for Hessians and gradients.
    """
    if work.plan.local_steps is None:
        raise ValueError("local_steps must be given, got none")
    planned = work.plan.planned(batches)
    trials, clients = len(planned), len(batches.clients)
    if oracle.separate and trials > 1:
        shared, back, loss = Remembered(batches), replicas(params, trials, clients, params.shape[-1]), []
        for row in range(trials):
            rows = slice(row, row + 1)
            trial_work = replace(
                work,
                plan=rows_of(work.plan, rows),
                prox=None if work.prox is None else work.prox[rows],
                weight_decay=None if work.weight_decay is None else work.weight_decay[rows],
            )
            done = run_meta_gradients(oracle, shared, params[rows], trial_work, alive[rows], unbiased)
            back[rows] = done.pseudo_gradient
            loss.append(done.first_loss)
        first_loss = torch.cat(loss)
    else:
        back, first_loss = _differentiated(oracle, batches, params, work, np.where(alive, planned, 0), unbiased)
    cost = np.broadcast_to(((1 + PRODUCT_COST) * planned + 1)[:, None], (trials, clients))
    return Local(lambda: back, cost, first_loss)


def _differentiated(
    oracle: Oracle,
    batches: RoundBatches,
    params: Tensor,
    work: LocalWork,
    steps: NDArray[np.int64],
    unbiased: bool,
) -> tuple[Tensor, Tensor]:
    """((T, M, P) gradients, (T, M) losses of the first batches); `steps` (T,) are those of each trial."""
    (trials, _, size), clients = params.shape, len(batches.clients)
    longest, stride = int(steps.max(initial=0)), 2 if unbiased else 1
    batches.prepare(stride * (longest + 1))
    prox, decay = _given(work.prox), _given(work.weight_decay)
    pull = decay if prox is None else prox if decay is None else prox + decay

    path = [params]  # a trial with fewer steps stays at the end of its path: its rates are 0 from there on
    client_lr = work.plan.client_lr
    rates = [
        client_lr * work.plan.relative(step, client_lr) * torch.as_tensor(steps > step).to(client_lr).view(-1, 1, 1)
        for step in range(longest)
    ]
    loss = None
    for step, rate in enumerate(rates):
        models = replicas(params, trials, clients, size).copy_(path[-1])

        def pulled(clients: slice, models: Tensor = models, rate: Tensor = rate) -> None:
            if pull is not None:
                models[:, clients].mul_(1 - rate * pull)
            if prox is not None:
                models[:, clients].add_(rate * prox * params)

        losses = oracle.descend_(models, batches.batch(stride * step, clients), rate, pulled, want_loss=step == 0)
        loss = losses if loss is None else loss
        path.append(models)

    back = replicas(params, trials, clients, size)
    for count in np.unique(steps).tolist():
        batch, last = batches.batch(stride * count, clients), path[count]
        if count == longest and (steps == longest).all():
            losses = oracle.gradient_(last, batch, back, want_loss=loss is None)
            slope = back
        else:
            losses, slope = oracle.value_and_grad(last, batch)
        loss = losses if loss is None else loss
        if decay is not None:
            slope = slope.add_(decay * last)
        if slope is not back:
            ends = torch.as_tensor(steps == count, device=params.device).view(-1, 1, 1)
            torch.where(ends, slope, back, out=back)
    kept = None if prox is None else torch.zeros_like(back)
    for step in reversed(range(longest)):
        rate = rates[step]
        if kept is not None and prox is not None:
            kept.addcmul_(back, rate * prox)

        def bent(clients: slice, rate: Tensor = rate) -> None:
            if pull is not None:
                back[:, clients].mul_(1 - rate * pull)

        oracle.bend_(path[step], batches.batch(stride * step + stride - 1, clients), back, rate, bent)
    assert loss is not None
    return back if kept is None else back.add_(kept), loss


def _given(strength: Tensor | None) -> Tensor | None:
    """A pull (T, 1, 1); None if it is 0."""
    return strength if strength is not None and bool((strength != 0).any()) else None
