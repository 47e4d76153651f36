"""Mini-batch SGD: every client returns one gradient at the broadcast model, and the server steps along their mean.

    q = mean over the cohort of grad f_i(x; one batch);   the server optimizer steps along q with server_lr

With one client a round it is SGD on that client's batches; with M clients and batches of B examples it is distributed
mini-batch SGD with batches of M B. It is FedSGD with local_steps 1, and any local method with one local step.
Exchanges: one a round, the model down and a gradient up.

Source: "Optimal Distributed Online Prediction Using Mini-Batches" (Dekel et al. 2012), in the form of
"Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.contracts import RoundGradients
from trainers.engine.local.work import ServerSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State

ONE_UPLOAD = True
SPACE = {"server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9}}
PSEUDO_GRADIENT = "sum"
round_gradients = RoundGradients(batches=1)


@dataclass(frozen=True)
class Hyper(ServerSteps):
    """Hyperparameters of mini-batch SGD."""


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    gradients = cohort.gradients(state.params, weight_decay=hyper.weight_decay, clip_norm=hyper.clip_norm)
    return state.step(cohort.mean(gradients))
