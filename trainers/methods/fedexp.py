"""FedExP: FedAvg whose server step grows where the clients' changes point apart, as projections are extrapolated.

    y_1 = x,   g_k = grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q_i = g_1 + ... + g_K,   q = mean over the cohort of q_i
    e = max(1, mean of |client_lr q_i|^2 / (2 (|client_lr q|^2 + epsilon)));   the server optimizer steps along e q

client_lr q_i is what a client has changed. With server_lr equal to client_lr and plain SGD on the server it is the
paper's algorithm; the paper then takes the mean of the last two models, which is not done here. epsilon above 0: as it
grows e falls to 1, which is FedAvg. client_lr at least 0: 0 is large-batch SGD. server_lr above 0, local_steps at least
1 or local_epochs, weight_decay, clip_norm and client optimizer as in FedAvg. The fixed points are those of FedAvg.
Exchanges: one a round, the model down and a pseudo-gradient up (its norm would be one number more). Nothing is stored.

Source: "FedExP: Speeding Up Federated Averaging via Extrapolation" (Jhunjhunwala, Wang, Joshi 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.engine.local.client_optimizer import Clipped
from trainers.engine.local.loop import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "any"}


@dataclass(frozen=True)
class Hyper(Clipped):
    """Hyperparameters of FedExP."""

    client_lr: Tensor = tunable(low=0, limit="0 is large-batch SGD", doc="step size of the clients")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the extrapolated mean pseudo-gradient")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", doc="gradients a round")
    epsilon: Tensor = tunable(
        1e-3, low=0, low_open=True, unit="model^2", limit="large is FedAvg", doc="added to the mean change's square"
    )
    local_epochs: int | None = tunable(
        None, low=1, unit="passes over a client's data", traced=False, doc="instead of local_steps"
    )
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
        hyper.local_steps,
        local_epochs=hyper.local_epochs,
        weight_decay=hyper.weight_decay,
        optimizer=cohort.optimizer,
        clip_norm=hyper.clip_norm,
    )
    pseudo_gradients = cohort.local(state.params, work).pseudo_gradient
    mean = cohort.mean(pseudo_gradients)
    square = hyper.client_lr**2
    each = square * cohort.mean(pseudo_gradients.square().sum(-1)).view(-1, 1, 1)
    together = square * mean.square().sum(-1, keepdim=True)
    return state.step((each / (2 * (together + hyper.epsilon))).clamp(min=1) * mean)
