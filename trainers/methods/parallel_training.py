"""Parallel training: a round of FedAvg and local steps on the server's own data run side by side; their changes add.

    clients: g_k = federated_weight grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
             q = mean over the cohort of g_1 + ... + g_K;   the server optimizer steps along q with server_lr: x_f
    server:  c_k = central_weight grad f_c(z_k; batch k),   z_{k+1} = z_k - central_lr c_k,   k = 1 .. central_steps
    x <- x + merge_lr ((x_f - x) + (z_{J+1} - x)),   y_1 = z_1 = x,   J = central_steps

for the loss federated_weight (mean of f_i) + central_weight f_c. With more than one step the limit is not its
minimizer, unless both parts have the same Hessian or minimizer; the distance grows with client_lr local_steps.

The weights sum to 1, and are both 1/2 by default; federated_weight 0 is training on the server alone. central_lr
defaults to server_lr (client_lr delta_lr), through every schedule. A given central_lr is constant; give one with an
adaptive server optimizer. central_steps defaults to local_steps and must be given with local_epochs. central_batch_size
defaults to clients_per_round batch_size examples. merge_by "sum" is the form above, "mean" halves merge_lr.
With server_lr equal to client_lr (delta_lr 1, the paper's choice) and plain SGD on the server, the clients' part is
model averaging. The server's branch and the merge are plain SGD by default. Their optimizers `central` and `merge` may
be others, which keep their memory between rounds: then give central_lr, and a merge_lr of the size of a step.
weight_decay is a part of f_i, not of f_c; clip_norm and the client optimizer act on g_k. train_loss and the task's
metrics are those of the clients' losses.
Exchanges: one a round, the model down and a pseudo-gradient up. The server stores the memory of its optimizers.

Source: "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein et al. 2022), algorithm 1
without the transfer of gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.contracts import RoundGradients
from trainers.engine.rounds.central_branch import Branches, merge, server_branch
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.trial import mixed_values as mixing

ROLES = {"client": "any", "central": "any", "merge": "any"}
ONE_UPLOAD = True
CENTRAL = True
complete = mixing.complete
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
}
INACTIVE = {"client_lr": ({"local_steps": 1},)}
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(Branches):
    """Hyperparameters of parallel training."""


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    clients = cohort.local(state.params, hyper.work(gradient_scale=hyper.federated_weight))
    server = server_branch(cohort.central, hyper, state)
    return merge(hyper, state, state.step(cohort.mean(clients)), server)
