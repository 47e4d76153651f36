"""First-order MAML: only the gradient after adaptation goes back.

    y_1 = x,   g_k = grad f_i(y_k; batch k) + prox (y_k - x),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = mean over the cohort of g_K;   the server optimizer steps along q with server_lr

In the language of meta-learning local_steps = K means K - 1 steps of adaptation, and the gradient at the adapted model.
local_steps at least 1: 1 is FedSGD. client_lr at least 0: 0 is FedSGD too, on the last batch. server_lr above 0. prox
at least 0: 0 is none; above it, proximal FO-MAML, the pull is in the gradient that goes back too. weight_decay at least
0: 0 is none. clip_norm above 0: largest norm of a g_k. Exchanges: one a round, the model down and a gradient up.

Source: "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks" (Finn, Abbeel, Levine 2017), in the form of
"Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.engine.local.client_optimizer import Clipped
from trainers.engine.local.loop import LocalWork, last_step_only
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "none: its local steps are plain gradient descent"}


@dataclass(frozen=True)
class Hyper(Clipped):
    """Hyperparameters of first-order MAML."""

    client_lr: Tensor = tunable(low=0, limit="0 is FedSGD on the last batch", doc="step size of the clients")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", limit="1 is FedSGD", doc="gradients a round")
    prox: Tensor = tunable(0.0, low=0, limit="0 is no pull", doc="pull of the adaptation to the broadcast model")
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round.
        cohort: the clients of the round.
    """
    work = LocalWork(
        hyper.client_lr,
        gradient_weights=last_step_only(hyper.local_steps),
        prox=hyper.prox,
        weight_decay=hyper.weight_decay,
        clip_norm=hyper.clip_norm,
    )
    return state.step(cohort.mean(cohort.local(state.params, work).pseudo_gradient))
