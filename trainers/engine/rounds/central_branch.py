"""The server's branch of a round in mixed federated learning, and the merge of both branches, with any optimizer.

The server's branch steps with the trial's optimizer `central`. The negative sum of both branches' changes is the
pseudo-gradient of the optimizer `merge`. Both optimizers keep their memory from round to round, like the server's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.engine.local.step_plan import StepPlan
from trainers.engine.local.work import LocalSteps, LocalWork
from trainers.engine.rounds.central_data import Central, merged
from trainers.engine.rounds.server_state import Memory, State
from trainers.hyperparameters import tunable

SERVER_LR = -1.0
"""Stands for a missing central_lr if other trials of the pack have one."""


@dataclass(frozen=True)
class MixedLoss(LocalSteps):
    """Hyperparameters of every method for federated_weight (mean of f_i) + central_weight f_c."""

    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", limit="1 is mixed SGD", doc="gradients a round")
    federated_weight: Tensor = tunable(
        None, low=0, high=1, limit="1 is FedAvg", doc="of the clients' loss; null is 1 - central_weight, else 1/2"
    )
    central_weight: Tensor = tunable(
        None, low=0, high=1, limit="0 is FedAvg", doc="of the server's own loss; null is 1 - federated_weight"
    )
    central_batch_size: int | None = tunable(
        None, low=1, unit="examples", traced=False, doc="of the server's loss; null is clients_per_round batch_size"
    )


@dataclass(frozen=True)
class Branches(MixedLoss):
    """Hyperparameters of a method with a branch of the server next to the clients' branch."""

    central_lr: Tensor | None = tunable(
        None,
        low=0,
        none_is=SERVER_LR,
        limit="0 leaves the clients' branch alone",
        doc="step size of the server's branch; null is server_lr",
    )
    central_steps: Tensor = tunable(
        None, kind="int", low=1, unit="steps", doc="of the server's branch; null is local_steps"
    )
    merge_lr: Tensor = tunable(1.0, low=0, low_open=True, doc="multiplies the added changes of both branches")
    merge_by: str = tunable(
        "sum", choices=("sum", "mean"), traced=False, doc="of the two changes; mean halves merge_lr"
    )


@dataclass(frozen=True)
class Branch:
    """Result of the server's branch.

    Args:
        delta: (T, 1, P) change of the model.
        mean_gradient: (T, 1, P) mean of its gradients, without the correction.
        memory: memory of its optimizer.
    """

    delta: Tensor
    mean_gradient: Tensor
    memory: Memory


def server_branch(central: Central, hyper: Any, state: State, correction: Tensor | None = None) -> Branch:
    """The server's steps of a round, from the round's model.

    Args:
        central: the server's data.
        hyper: the method's Hyper, with central_lr, central_steps, central_weight, central_batch_size. A central_lr of
            None or SERVER_LR means server_lr.
        state: state before the round, with the optimizer.
        correction: (T, 1, P) added to every gradient; None is 0.
    """
    rate = state.server_lr
    if hyper.central_lr is not None:
        rate = torch.where(hyper.central_lr < 0, rate, hyper.central_lr)
    optimizer = state.optimizers["central"]
    if optimizer.plain:
        plan = StepPlan(rate, hyper.central_steps)
        work = LocalWork(plan, gradient_scale=hyper.central_weight, correction=correction)
        total = central.local(state.params, work, hyper.central_batch_size).pseudo_gradient
        mean = total / hyper.central_steps.to(total)
        return Branch(-rate * total, mean if correction is None else mean - correction, {})

    kept = dict(state.optimizer_memory["central"])

    def step(params: Tensor, gradient: Tensor, active: Tensor) -> Tensor:
        whole = gradient if correction is None else gradient + correction
        moved, fresh = optimizer.step(kept, params, whole, rate)
        for name, tensor in fresh.items():
            kept[name] = torch.where(active, tensor, kept[name])
        return moved

    params, total = _walk(central, hyper, state.params, step)
    return Branch(params - state.params, total / hyper.central_steps.to(total), kept)


def merge(hyper: Any, before: State, federated: State, branch: Branch) -> State:
    """The state after the merge, with the memory of both optimizers.

    Args:
        hyper: the method's Hyper, with merge_lr and merge_by ("mean" halves merge_lr).
        before: state before the round, with the optimizer.
        federated: state after the server optimizer's step.
        branch: the server's branch.
    """
    rate = hyper.merge_lr / 2 if hyper.merge_by == "mean" else hyper.merge_lr
    optimizer = before.optimizers["merge"]
    federated = federated.keep("central", branch.memory)
    if optimizer.plain:
        return merged(before, federated, branch.delta, rate)
    change = federated.params - before.params + branch.delta
    params, fresh = optimizer.step(before.optimizer_memory["merge"], before.params, -change, rate)
    return replace(federated.keep("merge", fresh), params=params)


def _walk(
    central: Central, hyper: Any, params: Tensor, step: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """(models after the steps, sum of the gradients); each trial takes its own number of steps."""
    counts = np.where(central.alive, hyper.central_steps.cpu().numpy().reshape(-1), 0)
    total = torch.zeros_like(params)
    for number in range(int(counts.max(initial=0))):
        taking = counts > number
        active = torch.as_tensor(taking, device=params.device).view(-1, 1, 1)
        gradient = central.step_gradient(params, number, hyper.central_weight, hyper.central_batch_size, taking)
        moved = step(params, gradient, active)
        total = torch.where(active, total + gradient, total)
        params = torch.where(active, moved, params)
    return params, total
