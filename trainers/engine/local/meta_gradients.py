"""Exact gradients through local training, as MAML needs them.

With y_1 = x and y_{k+1} = y_k - client_lr (grad f(y_k) + weight_decay y_k + prox (y_k - x)), k = 1 .. K, the gradient
of f(y_{K+1}) with respect to x is computed backwards, by Hessian-vector products along the path:

    v = grad f(y_{K+1}) + weight_decay y_{K+1},   u = 0
    for k = K .. 1:   u <- u + client_lr prox v,   v <- v - client_lr (H(y_k) v + weight_decay v + prox v)
    the gradient is v + u

The path is stored, (K, T, M, P), not a graph. Trials with fewer steps wait at the end of their path.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.local.work import Local, LocalWork
from trainers.engine.oracles.oracle import Oracle, RoundBatches

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
        work: client_lr, local_steps, prox and weight_decay.
        alive: (T,) mask of running trials. The results of the others are undefined.
        unbiased: independent batches for Hessians and gradients.
    """
    if work.local_steps is None:
        raise ValueError("local_steps must be given, got none")
    given = work.local_steps.cpu().numpy().reshape(-1)
    steps = np.where(alive, given, 0)
    left = torch.as_tensor(steps, device=params.device).view(-1, 1, 1)
    longest, clients = int(steps.max(initial=0)), len(batches.clients)
    stride = 2 if unbiased else 1
    batches.prepare(stride * (longest + 1))
    prox = torch.zeros_like(work.client_lr) if work.prox is None else work.prox
    decay = torch.zeros_like(work.client_lr) if work.weight_decay is None else work.weight_decay

    path = [params]
    loss, slope = oracle.value_and_grad(params, batches.batch(0, clients))
    back = slope = slope + decay * params
    for step in range(longest):
        here = path[-1]
        moved = here - work.client_lr * (slope + prox * (here - params))
        path.append(torch.where(left > step, moved, here))
        slope = oracle.value_and_grad(path[-1], batches.batch(stride * (step + 1), clients))[1] + decay * path[-1]
        back = torch.where(left == step + 1, slope, back)
    kept = torch.zeros_like(back)
    for step in reversed(range(longest)):
        batch = batches.batch(stride * step + stride - 1, clients)
        bent = oracle.hvp(path[step], batch, back) + (decay + prox) * back
        busy = left > step
        kept = torch.where(busy, kept + work.client_lr * prox * back, kept)
        back = torch.where(busy, back - work.client_lr * bent, back)
    cost = np.broadcast_to(((1 + PRODUCT_COST) * given + 1)[:, None], (len(given), clients))
    return Local(back + kept, cost, loss)
