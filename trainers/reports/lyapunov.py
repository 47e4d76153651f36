"""The Lyapunov function of MaSS after every round: each local step multiplies its expectation by at most 1 - mixing.

    lyapunov = sum_i p_i [ (v_i - w*)' H_i^-1 (v_i - w*) + (auxiliary_lr / mixing) |x - w*|^2 ]

over the clients of the round, with weights of sum 1, v_i the auxiliary with which client i starts the next round under
`sync`, H_i the Hessian of its loss (the pseudo-inverse if it is singular) and w* the optimum of the task. The theorem
assumes interpolation, all clients in every round, its own hyperparameters, and sync lyapunov or reset. Every round
computes d + 1 more gradients of every client on all its data, with d parameters, which no counter counts.

Source: "Exponential Convergence of FedAvg with MaSS for Linear Regression Problem with 0 Loss", proof of theorem 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.engine.evaluation.views import ChosenMethod, RoundView
from trainers.hyperparameters import describe

METRICS = ("lyapunov",)
NEEDS = ("distance",)  # tasks with this metric have w*
_OF_MASS = {"sync", "mixing", "mixing_by_client"}  # hyperparameters of methods with an auxiliary


def refuse(method: ChosenMethod) -> str | None:
    """Why this report is not possible with a method; None if it is.

    Args:
        method: the method of the trial.
    """
    has = {item.name for item in describe(method.module.Hyper)} >= _OF_MASS
    return None if has else f"the method {method.name}, which has no auxiliary sequence"


def of_round(view: RoundView) -> dict[str, Tensor]:
    """(T,) values by name.

    Args:
        view: the finished round.
    """
    layout, hyper, x = view.model.layout, view.hyper.of(view.cohort), view.after.params
    optimum = torch.as_tensor(getattr(view.model, "optimum"), dtype=x.dtype, device=x.device)  # noqa: B009
    away = layout.vector(_auxiliary(view)) - optimum  # (T, M or 1, d)
    inverse = torch.linalg.pinv(_hessians(view), hermitian=True)  # (M, d, d)
    away = away.expand(-1, inverse.shape[0], -1)
    of_clients = view.cohort.measured_mean(torch.einsum("tmi,mij,tmj->tm", away, inverse, away))
    ratio = hyper.client_lr / (hyper.mixing.square() * hyper.batch_statistical_condition_number)
    if hyper.rate_share_by_client is None:
        weight = ratio[:, 0, 0]
    else:
        weight = view.cohort.measured_mean((ratio * hyper.rate_share_by_client)[..., 0])
    return {"lyapunov": of_clients + weight * (layout.vector(x[:, 0]) - optimum).square().sum(-1)}


def _auxiliary(view: RoundView) -> Tensor:
    """(T, M or 1, P) v at the start of the next round."""
    hyper, x, after = view.hyper.of(view.cohort), view.after.params, view.after
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
    """(M, d, d) Hessians of the clients' losses, which are quadratic, on all their data."""
    layout, like = view.model.layout, view.after.params
    points = torch.eye(layout.count + 1, layout.count, dtype=like.dtype, device=like.device)  # the last one is 0
    gradients = layout.vector(view.cohort.peek(layout.row(points).unsqueeze(1), "full"))
    hessians: Tensor = (gradients[:-1] - gradients[-1]).transpose(0, 1)
    return hessians
