"""FedSGD: clients return gradients at the broadcast model, without local training.

    q = mean over the cohort of g_1 + ... + g_K,   g_k = grad f_i(x; batch k),   K = local_steps
    the server optimizer steps along q with server_lr

More local_steps mean a larger batch. Its K gradients are summed, not averaged, so server_lr acts K times.
Exchanges: one a round, the model down and a gradient up.

Source: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al. 2017), in the form
of "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import ServerSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ONE_UPLOAD = True
SPACE = {
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
}
PSEUDO_GRADIENT = "sum"
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(ServerSteps):
    """Hyperparameters of FedSGD."""

    local_steps: Tensor = tunable(
        1, kind="int", low=1, unit="steps", limit="1 is one gradient", doc="gradients a round"
    )


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    gradients = cohort.gradients(
        state.params, weight_decay=hyper.weight_decay, clip_norm=hyper.clip_norm, batches=hyper.local_steps
    )
    return state.step(cohort.mean(gradients))
