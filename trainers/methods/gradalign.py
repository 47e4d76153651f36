"""GradAlign: large-batch SGD with gradients at displaced models, as if the other batches had already moved them.

    g_i = grad f_i(x; batch),   g = mean over the cohort of g_i,   u_i = displacement (g_i - g)
    q = mean over the cohort of grad f_i(x + u_i; the same batch);   the server optimizer steps along q with server_lr

To second order, and exactly on quadratics, this is a gradient step on the loss plus displacement times the misalignment
(1 / 2n) sum ||g_i - g||^2. It is FedGA with one local step. displacement 0 is FedSGD; half the step size of sequential
SGD gives the alignment of SGD itself. displacement_source is the data of g_i: "batch" is the client's first batch,
which counts as one gradient; "full" is all its data, which counts as the mini-batches of one pass. clip_norm bounds a
displaced gradient.
Exchanges: two a round, the model down and g_i up, then g down and a gradient up. Nothing is stored.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import ServerSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

SPACE = {
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "displacement": {"float": [1e-3, 10.0], "log": True},
}


@dataclass(frozen=True)
class Hyper(ServerSteps):
    """Hyperparameters of GradAlign."""

    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean gradient")
    displacement: Tensor = tunable(
        low=0, unit="model / gradient", limit="0 is FedSGD", doc="gradients are taken at x + displacement (g_i - g)"
    )
    displacement_source: str = tunable(
        "batch", choices=("full", "batch"), traced=False, doc="data of the gradients g_i that displace"
    )


def round_gradients(values: Mapping[str, Any]) -> RoundGradients:
    """The gradient at the displaced model, and the gradient that displaces it."""
    return RoundGradients(batches=1).and_at(values["displacement_source"])


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    gradients = cohort.gradients(state.params, full=hyper.displacement_source == "full")
    mean = cohort.mean(gradients)
    displaced = cohort.gradients(
        state.params,
        displacement=torch.addcmul(-hyper.displacement * mean, gradients, hyper.displacement, out=gradients),
        weight_decay=hyper.weight_decay,
        clip_norm=hyper.clip_norm,
        down=[mean],
    )
    return state.step(cohort.mean(displaced))
