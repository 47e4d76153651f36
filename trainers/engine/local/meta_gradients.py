"""Gradients through local training, exactly: what MAML sends back.

With y_1 = x and y_{k+1} = y_k - client_lr (grad f(y_k) + weight_decay y_k + prox (y_k - x)), k = 1 .. K, the gradient
in x of f(y_{K+1}) is found from its end, by Hessian products along the path:

    v = grad f(y_{K+1}) + weight_decay y_{K+1},   u = 0
    for k = K .. 1:   u <- u + client_lr prox v,   v <- v - client_lr (H(y_k) v + weight_decay v + prox v)
    the gradient is v + u

The path is kept, (K, T, M, P); no graph is. Trials with fewer steps wait at the end of their path.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.local.work import Local, LocalWork
from trainers.engine.oracles.oracle import Oracle, RoundBatches

PRODUCT_COST = 2  # a Hessian product is the derivative of a gradient: counted as so many gradients


def run_meta_gradients(
    oracle: Oracle, batches: RoundBatches, params: Tensor, work: LocalWork, alive: NDArray[np.bool_], unbiased: bool
) -> Local:
    """The gradients of all clients of all trials; `steps` of the answer are what they cost, in gradients.

    Step k (from 0) and the gradient after the last one have batch k, which serves the Hessian as well. With `unbiased`
    gradients have the even batches and each Hessian the odd one after its gradient's.

    Args:
        oracle: of the model.
        batches: of the round.
        params: (T, 1, P), the broadcast models.
        work: client_lr, local_steps, prox and weight_decay.
        alive: (T,); trials that are not get numbers without meaning.
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
