"""Linear scaling: one step along the sum of the clients' gradients replaces one SGD step for each client.

    q = sum over the cohort of grad f_i(x; batch);   the server optimizer steps along q with server_lr

The sum is the number of clients times the (weighted) mean. It imitates sequential SGD with step size server_lr, to
first order. FedSGD with server_lr times the number of clients takes the same step. Exchanges: one a round, the model
down and a gradient up. Nothing is stored.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), appendix A.2,
after "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (Goyal et al. 2017).
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
SPACE = {"server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9}}
round_gradients = RoundGradients(batches=1)


@dataclass(frozen=True)
class Hyper(ServerSteps):
    """Hyperparameters of linear scaling."""

    server_lr: Tensor = tunable(low=0, low_open=True, doc="step size of every client's gradient in the sum")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    gradients = cohort.gradients(state.params, weight_decay=hyper.weight_decay, clip_norm=hyper.clip_norm)
    return state.step(cohort.clients * cohort.mean(gradients))
