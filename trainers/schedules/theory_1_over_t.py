"""Both rates decay like 1/round, as in the theory for strongly convex quadratics.

Source: "On the Outsized Importance of Learning Rates in Local Update Methods" (Charles, Konecny 2020), theorem 29, with
mu = strong_convexity, L = smoothness, K = local_steps, b = 3 (L / mu)^2, and t counting rounds from 1:

    client_lr_t = min(1 / (L (b + t)), ln 2 / (K mu))
    server_lr_t = 3 / (mu_t (b + t)),   mu_t = (1 - (1 - client_lr_t mu)^K) / client_lr_t

With all gradient weights 1, the squared distance to the optimum then falls like 1/t (the constant in the paper needs a
factor (K - 1)^2 on its bias term). The method's client_lr and server_lr are not used. local_steps is that of the method
unless given. If smoothness equals strong_convexity, b is 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.errors import SpecError
from trainers.hyperparameters import tunable
from trainers.values import shown

LOSS_DATA = "batches"
RATES = "replaced"
FOLLOWS = {"local_steps": 1}  # default: the method's local_steps; 1 for methods without local steps
SPACE = {
    "strong_convexity": {"float": [0.1, 1.0], "log": True},
    "smoothness": {"float": [1.0, 10.0], "log": True},
}


@dataclass(frozen=True)
class Hyper:
    """The constants of the theorem; members of a pack may differ in them."""

    strong_convexity: Tensor = tunable(low=0, low_open=True, doc="smallest eigenvalue of any client's Hessian")
    smoothness: Tensor = tunable(low=0, low_open=True, doc="largest eigenvalue of any client's Hessian")
    local_steps: Tensor = tunable(
        None, kind="int", low=1, unit="steps", limit="1 leaves no bias", doc="absent: as the method's"
    )


def complete(values: dict[str, Any]) -> dict[str, Any]:
    convexity, smoothness = values["strong_convexity"], values["smoothness"]
    if smoothness < convexity:
        raise SpecError(
            "schedule.smoothness must be at least strong_convexity, "
            f"got smoothness={shown(smoothness)} and strong_convexity={shown(convexity)}",
            "schedule.smoothness",
        )
    return values


def init(hyper: Hyper, client_lr: Tensor, server_lr: Tensor) -> dict[str, Tensor]:
    return _at(hyper, torch.ones_like(client_lr, dtype=torch.int64), client_lr)


def rates(state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return state["client_lr"], state["server_lr"]


def update(hyper: Hyper, state: dict[str, Tensor], monitored: Tensor) -> dict[str, Tensor]:
    return _at(hyper, state["next_round"] + 1, state["client_lr"])


def _at(hyper: Hyper, number: Tensor, like: Tensor) -> dict[str, Tensor]:
    """The state with the rates of round `number`, counted from 1."""
    convexity, smoothness = hyper.strong_convexity.double(), hyper.smoothness.double()
    steps = hyper.local_steps.double()
    later = 3 * (smoothness / convexity) ** 2 + number
    client_lr = torch.minimum(1 / (smoothness * later), math.log(2) / (steps * convexity))
    curvature = -torch.expm1(steps * torch.log1p(-client_lr * convexity)) / client_lr
    server_lr = 3 / (curvature * later)
    return {"next_round": number, "client_lr": client_lr.to(like), "server_lr": server_lr.to(like)}
