"""FedAvg: local gradient descent from the broadcast model, the sum of all local gradients goes back.

    y_1 = x,   g_k = grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = mean over the cohort of g_1 + ... + g_K;   the server optimizer steps along q with server_lr

server_lr equal to client_lr, with plain SGD on the server, is model averaging. With local_epochs every client passes so
often over its own data. weight_decay and clip_norm are of g_k. With a client optimizer other than sgd y_{k+1} =
y_k - client_lr d_k and q is the mean of d_1 + ... + d_K = (x - y_{K+1}) / client_lr, summed as it stands, so that no
client_lr is too small; what the optimizer remembers begins afresh every round. Exchanges: one a round, the model down
and a pseudo-gradient up.

Source: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al. 2017), in the form
of "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.engine.local.local_steps import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State

ROLES = {"client": "any"}


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of FedAvg."""


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round."""
    done = cohort.local(state.params, hyper.work())
    return state.step(cohort.mean(done.pseudo_gradient))
