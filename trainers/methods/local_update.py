"""Local update with any weights: the family that contains FedAvg, FedProx, Reptile, FOMAML and FedSGD.

    y_1 = x,   g_k = grad f_i(y_k; batch k) + prox (y_k - x),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. K
    q = mean over the cohort of theta_1 g_1 + ... + theta_K g_K;   the server optimizer steps along q with server_lr

gradient_weights are (theta_1, ..., theta_K); all 1 is FedAvg (FedProx with prox above 0), 0, ..., 0, 1 is FOMAML.
local_steps is their number and need not be given. If a schedule sets the rates of the local steps, g_k counts theta_k
times its step's rate over client_lr; if only g_K has a weight, it counts theta_K. Exchanges: one a round, the model
down and a pseudo-gradient up.

Source: "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021),
algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable, withdrawn

ROLES = {"client": "none: its local steps are plain gradient descent"}
ONE_UPLOAD = True
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True, "also": [0.0]},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "gradient_weights": {
        "choice": [
            [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        ]
    },
    "prox": {"float": [1e-3, 10.0], "log": True, "also": [0.0]},
}
INACTIVE = {"prox": ({"client_lr": 0},)}
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of local update."""

    gradient_weights: Tensor = tunable(
        kind="floats",
        low=0,
        limit="all 1 is FedAvg; 0, ..., 0, 1 is FOMAML",
        doc="of the local gradients, the last above 0",
    )
    local_steps: Tensor = tunable(None, kind="int", low=1, unit="steps", doc="the number of gradient_weights")
    prox: Tensor = tunable(0.0, low=0, limit="0 is no pull", doc="pull to the broadcast model")
    local_epochs: int | None = withdrawn("gradient_weights say how many steps there are")


def round_batches(values: Mapping[str, Any]) -> int:
    """One batch for each gradient weight."""
    return len(values["gradient_weights"])


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    work = hyper.work(hyper.gradient_weights, prox=hyper.prox)
    return state.step(cohort.mean(cohort.local(state.params, work)))
