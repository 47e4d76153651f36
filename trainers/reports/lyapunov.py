"""The Lyapunov value of MaSS after every round: in expectation each local step multiplies it by 1 - mixing at most.

    lyapunov = sum_i p_i (v_i - w*)' H_i^-1 (v_i - w*) + (auxiliary_lr / mixing) |x - w*|^2

over the clients of the round, weights summing to 1, with v_i the auxiliary with which client i begins the next round
under `sync`, H_i the Hessian of its loss (the pseudo-inverse of a singular one) and w* the optimum of the task. The
theorem is for interpolation, all clients in every round, the theorem's hyperparameters and sync lyapunov or reset. A
round costs d + 1 more gradients of every client on all its data, d the number of parameters; nothing is counted.

Source: "Exponential Convergence of FedAvg with MaSS for Linear Regression Problem with 0 Loss", proof of theorem 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.contracts import Method
from trainers.engine.evaluation.views import RoundView
from trainers.trial.parts import Part

METRICS = ("lyapunov",)
NEEDS = ("distance",)  # metrics of the task, without which there is no w*


def refuse(method: Part[Method]) -> str | None:
    """Why there is no such report, or None.

    Args:
        method: of the trial.
    """
    return None if method.name == "mass" else f"the method {method.name}, which has no auxiliary sequence"


def of_round(view: RoundView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: of the round that has been done.
    """
    layout, hyper, x = view.model.layout, view.hyper, view.after.params
    optimum = torch.as_tensor(getattr(view.model, "optimum"), dtype=x.dtype, device=x.device)  # noqa: B009
    away = layout.vector(_auxiliary(view)) - optimum  # (T, M or 1, d)
    inverse = torch.linalg.pinv(_hessians(view), hermitian=True)  # (M, d, d)
    away = away.expand(-1, inverse.shape[0], -1)
    of_clients = view.cohort.mean(torch.einsum("tmi,mij,tmj->tm", away, inverse, away))
    ratio = hyper.client_lr / (hyper.mixing.square() * hyper.batch_statistical_condition_number)
    return {"lyapunov": of_clients + ratio[:, 0, 0] * (layout.vector(x[:, 0]) - optimum).square().sum(-1)}


def _auxiliary(view: RoundView) -> Tensor:
    """(T, M or 1, P), v at the start of the next round."""
    hyper, x, after = view.hyper, view.after.params, view.after
    if hyper.sync == "lyapunov":
        return after.stored["auxiliary"]
    if hyper.sync == "avg_v":
        return after.memory["auxiliary"]
    if hyper.sync == "reset":
        return x
    if hyper.sync == "momentum_wu":
        lookahead = after.memory["lookahead"]
    else:
        share = (1 + hyper.momentum) / (2 if hyper.sync == "momentum_half" else 1)
        lookahead = share * x + after.stored["rest"]
    auxiliary: Tensor = ((1 + hyper.mixing) * lookahead - x) / hyper.mixing
    return auxiliary


def _hessians(view: RoundView) -> Tensor:
    """(M, d, d) of the clients' losses on all their data, which are quadratic."""
    layout, like = view.model.layout, view.after.params
    points = torch.eye(layout.count + 1, layout.count, dtype=like.dtype, device=like.device)  # the last one is 0
    gradients = layout.vector(view.cohort.peek(layout.row(points).unsqueeze(1), "full"))
    hessians: Tensor = (gradients[:-1] - gradients[-1]).transpose(0, 1)
    return hessians
