"""Alignment-aware linear scaling: one summed step equals, to second order, sequential SGD averaged over client orders.

    g_i = grad f_i(x; batch),   s = sum over the cohort of v_i g_i
    q = sum over the cohort of v_i grad f_i(x - (client_lr / 2) (s - v_i g_i); the same batch)
    the server optimizer steps along q with server_lr

v_i is the weight of a client times the number of clients, 1 for equal weights: the imitated sequential SGD takes steps
of client_lr v_i. In SGD over the clients in random order, on average half of the other clients' steps come before a
client's own. client_lr is the step size of the sequential SGD; the paper sets server_lr equal to it.
weight_decay is a part of f_i. Many clients or large steps amplify the error; GradAlign or FedGA are then better.
clip_norm bounds a gradient of the second pass. Exchanges: two a round, the model down and g_i up, then s down and a
gradient up; each of the two gradients of a client counts. Nothing is stored.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), appendix A.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import ServerSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True, "also": [0.0]},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
}
round_gradients = RoundGradients(batches=2)


@dataclass(frozen=True)
class Hyper(ServerSteps):
    """Hyperparameters of alignment-aware linear scaling."""

    client_lr: Tensor = tunable(low=0, limit="0 is linear scaling", doc="step size of the SGD that is imitated")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="step size of every client's gradient in the sum")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    gradients = cohort.gradients(state.params, weight_decay=hyper.weight_decay)
    total = cohort.clients * cohort.mean(gradients)
    halfway = cohort.gradients(
        state.params,
        displacement=gradients.mul_(cohort.relative_weights).sub_(total).mul_(hyper.client_lr / 2),
        weight_decay=hyper.weight_decay,
        clip_norm=hyper.clip_norm,
        down=[total],
    )
    return state.step(cohort.clients * cohort.mean(halfway))
