"""FedDyn with aligned gradients: taken at displaced models, as if the other clients had already moved them.

    h_i = grad f_i(x),   h = mean over the cohort of h_i,   u_i = displacement (h_i - h),   y_1 = x
    g_k = grad f_i(y_k + u_i; batch k) - prox a_i + prox (y_k - x),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. K
    a_i <- a_i + x - y_{K+1}, for the clients of the round;   a = weighted mean over all clients of a_i
    q = mean over the cohort of g_1 + ... + g_K, plus a / client_lr;   the server optimizer steps along q with server_lr

displacement 0 is feddyn with one more exchange; prox is that of feddyn. Clients compute with y_k + u_i, which starts at
x + u_i, and pull to that start, so that a local step costs nothing extra. If all clients take part, at a fixed point
the mean gradient at the displaced models is 0: to first order x is stationary for the mean loss plus displacement times
the misalignment (1 / 2n) sum ||h_i - h||^2.
displacement_source is the data of h_i: "full" is all data of a client, "batch" its first batch.
Exchanges: two a round, the model down and h_i up, then h down and a pseudo-gradient up. Clients store one model-sized
tensor each, a_i, and the server one, a.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), section 2, which
names FedDyn as a host without a formula; this is its displacement of every gradient, in algorithm 1 of "Federated
Learning Based on Dynamic Regularization" (Acar and others 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "any"}
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
    "prox": {"float": [1e-3, 10.0], "log": True},
    "displacement": {"float": [1e-3, 10.0], "log": True},
}


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of FedDyn with aligned gradients."""

    client_lr: Tensor = tunable(low=0, low_open=True, doc="step size of the clients")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the pseudo-gradient; client_lr is the paper's")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", doc="gradients a round")
    prox: Tensor = tunable(
        low=0, unit="gradient / model", limit="0 is FedGA's local work", doc="of the pull and of its correction"
    )
    displacement: Tensor = tunable(
        low=0, unit="model / gradient", limit="0 is FedDyn", doc="gradients are taken at y + displacement (h_i - h)"
    )
    displacement_source: str = tunable(
        "full", choices=("full", "batch"), traced=False, doc="data of the gradients h_i that displace"
    )


def stored(hyper: Hyper) -> tuple[str, ...]:
    """Client state: its accumulated update a_i (the dual variable)."""
    return ("gone",)


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """Server memory before the first round: a, the mean of all a_i."""
    return {"mean_gone": torch.zeros_like(params)}


def round_gradients(values: Mapping[str, Any]) -> RoundGradients:
    """Gradients of the local steps, and the gradient that displaces the client's model."""
    return RoundGradients(per_step=1).and_at(values["displacement_source"])


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    gone = cohort.stored["gone"]
    gradients = cohort.gradients(state.params, full=hyper.displacement_source == "full")
    mean = cohort.mean(gradients)
    displacement = hyper.displacement * (gradients - mean)
    work = hyper.work(prox=hyper.prox, displacement=displacement, correction=-hyper.prox * (gone + displacement))
    pseudo_gradients = cohort.local(state.params, work, down=[mean]).pseudo_gradient
    mean_change = cohort.mean(pseudo_gradients)
    mean_gone = state.memory["mean_gone"] + cohort.share * hyper.client_lr * mean_change
    state = state.step(mean_change + mean_gone / hyper.client_lr)
    return state.remember(mean_gone=mean_gone).store(gone=gone + hyper.client_lr * pseudo_gradients)
