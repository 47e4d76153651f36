"""First-order MAML: clients return only the gradient after adaptation.

    y_1 = x,   g_k = grad f_i(y_k; batch k) + prox (y_k - x),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = mean over the cohort of g_K;   the server optimizer steps along q with server_lr

In the terms of meta-learning, local_steps = K means K - 1 steps of adaptation and the gradient at the adapted model.
With prox above 0 it is proximal FO-MAML, and the returned gradient includes the pull. If a schedule sets the rates of
the local steps, g_K still counts fully, because no gradient is taken after its step. Exchanges: one a round, the model
down and a gradient up.

Source: "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks" (Finn, Abbeel, Levine 2017), in the form of
"Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.step_plan import last_step_only
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable, withdrawn

ROLES = {"client": "none: its local steps are plain gradient descent"}
ONE_UPLOAD = True
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True, "also": [0.0]},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [2, 4, 8, 16, 32]},
}
INACTIVE = {
    "client_lr": ({"local_steps": 1},),
    "prox": ({"local_steps": 1}, {"client_lr": 0}),
}
PSEUDO_GRADIENT = "last"
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of first-order MAML."""

    client_lr: Tensor = tunable(low=0, limit="0 is FedSGD on the last batch", doc="step size of the clients")
    prox: Tensor = tunable(0.0, low=0, limit="0 is no pull", doc="pull of the adaptation to the broadcast model")
    local_epochs: int | None = withdrawn("the last of a fixed number of steps is the one that counts")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    work = hyper.work(last_step_only(hyper.local_steps), prox=hyper.prox)
    return state.step(cohort.mean(cohort.local(state.params, work)))
