"""FedExP: FedAvg with a larger server step when the clients' changes point apart, as in extrapolated projections.

    y_1 = x,   g_k = grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q_i = g_1 + ... + g_K,   q = mean over the cohort of q_i
    e = max(1, mean of |client_lr q_i|^2 / (2 (|client_lr q|^2 + epsilon)));   the server optimizer steps along e q

client_lr q_i is the change of a client's model. With server_lr equal to client_lr and plain SGD on the server this is
the paper's algorithm, without its final averaging of the last two models. As epsilon grows, e falls to 1, which is
FedAvg. The fixed points are those of FedAvg. With a small epsilon the iterates are chaotic near a fixed point: on three
quadratics with epsilon 0.001, a difference of 3e-14 at the start grew to 0.06 after 60 rounds, so curves differ between
kinds of machine. Exchanges: one a round, the model down and a pseudo-gradient up (its norm would add one number).
Nothing is stored.

Source: "FedExP: Speeding Up Federated Averaging via Extrapolation" (Jhunjhunwala, Wang, Joshi 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "any"}
ONE_UPLOAD = True
PARTIAL_WORK = True
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True},
    "delta_lr": {"float": [0.25, 4.0], "log": True},
    "local_steps": {"choice": [2, 4, 8, 16, 32]},
    "epsilon": {"float": [1e-4, 1.0], "log": True},
}
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of FedExP."""

    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the extrapolated mean pseudo-gradient")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", doc="gradients a round")
    epsilon: Tensor = tunable(
        1e-3, low=0, low_open=True, unit="model^2", limit="large is FedAvg", doc="added to the mean change's square"
    )


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    pseudo_gradients = cohort.local(state.params, hyper.work()).pseudo_gradient
    mean = cohort.mean(pseudo_gradients)
    square = hyper.client_lr**2
    mean_of_squares = square * cohort.mean(pseudo_gradients.square().sum(-1)).view(-1, 1, 1)
    square_of_mean = square * mean.square().sum(-1, keepdim=True)
    return state.step((mean_of_squares / (2 * (square_of_mean + hyper.epsilon))).clamp(min=1) * mean)
