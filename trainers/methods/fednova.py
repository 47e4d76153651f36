"""FedNova: normalised averaging, so that clients with more local steps do not pull the model to their own minimizers.

    y_1 = x,   g_k = grad f_i(y_k; batch k) + prox (y_k - x),   y_{k+1} = y_k - client_lr d_k,   k = 1 .. K_i
    G_i = d_1 + ... + d_{K_i},   a_i = the value of G_i if every grad f_i were 1
    q = effective_steps (mean over the cohort of G_i / a_i);   the server optimizer steps along q with server_lr

d_k is g_k, or the client optimizer's direction for it (sgd, momentum or nesterov, which are linear in the gradients).
With plain steps a_i = K_i, with prox a_i = (1 - (1 - client_lr prox)^K_i) / (client_lr prox), with momentum a_i is the
sum of its weights. The mean is over G_i / a_i, the gradients of one step. So for small client_lr the limit is the
minimizer of the weighted mean loss, while FedAvg with unequal steps finds the minimizer for weights multiplied by K_i.

Steps are unequal with local_epochs, because clients have different numbers of batches. With local_steps they are equal,
and FedNova is FedAvg (FedProx with prox). effective_steps null is the weighted mean over the cohort of the a_i, the
paper's choice. client_lr 0 is large-batch SGD with equal weights of the clients' batches. With server_lr equal to
client_lr and plain SGD on the server it is the paper's averaging. weight_decay is a part of f_i.
Exchanges: one a round, the model down and a pseudo-gradient up, with one number, a_i, that is not counted. Nothing is
stored.

Source: "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization" (Wang, Liu, Liang, Joshi,
Poor 2020), equation 7 and section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.client_optimizer import ClientOptimizer
from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

__all__ = ["sums_of_ones"]

ROLES = {"client": "linear"}
ONE_UPLOAD = True
PARTIAL_WORK = True
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True, "also": [0.0]},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_epochs": {"choice": [1, 2, 4, 8]},
}
INACTIVE = {
    "client_lr": ({"local_steps": 1},),
    "prox": ({"local_steps": 1}, {"client_lr": 0}),
}
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of FedNova."""

    local_steps: Tensor = tunable(
        kind="int", low=1, unit="steps", limit="equal steps are FedAvg", doc="gradients a round"
    )
    effective_steps: Tensor | None = tunable(
        None,
        kind="float",
        low=0,
        low_open=True,
        none_is=0.0,
        unit="steps",
        limit="null is the cohort's mean",
        doc="multiplies the mean normalised gradient",
    )
    prox: Tensor = tunable(0.0, low=0, limit="0 is no pull", doc="pull to the broadcast model")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    done = cohort.local(state.params, hyper.work(prox=hyper.prox))
    norms = sums_of_ones(hyper, cohort.with_rates(hyper.step_plan), cohort.optimizer, done.steps, state.params)
    effective = cohort.mean(norms[..., 0]).view(-1, 1, 1)
    if hyper.effective_steps is not None:
        effective = torch.where(hyper.effective_steps > 0, hyper.effective_steps, effective)
    return state.step(effective * cohort.mean(done.pseudo_gradient / norms))


def sums_of_ones(
    hyper: Hyper, plan: StepPlan, optimizer: ClientOptimizer | None, steps: NDArray[np.int64], like: Tensor
) -> Tensor:
    """a_i, the result of each client's local work if all gradients were 1: (T, M, 1), above 0.

    Args:
        hyper: traced fields (T, 1, 1).
        plan: of the local steps, with their rates.
        optimizer: optimizer of the clients; None is gradient descent.
        steps: (T, M), 0 for stopped trials, for which the result is 1.
        like: (T, 1, P), with the type and device of the result.
    """
    total = like.new_zeros((like.shape[0], 1, 1))
    memory = {} if optimizer is None else optimizer.init(total)
    sums = [torch.ones_like(total)]
    for step in range(int(steps.max(initial=0))):
        gradient, relative = 1 - hyper.client_lr * hyper.prox * total, plan.relative(step, like)
        if optimizer is None:
            total += relative * gradient
        else:
            optimizer.step_(total, memory, gradient, step, -relative)
        sums.append(total.clone())
    table = torch.cat(sums, 1)[..., 0]  # (T, 1 + most steps)
    norms = table.gather(1, torch.tensor(steps, device=like.device)).unsqueeze(-1)
    return torch.where(norms > 0, norms, 1)  # clients whose rates are all 0 send 0
