"""All on the client: FedAvg whose clients compute the server's loss too, the baseline of mixed federated learning.

    y_1 = x,   g_k = federated_weight grad f_i(y_k; batch k) + central_weight grad f_c(y_k; central batch k)
    y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = mean over the cohort of g_1 + ... + g_K;   the server optimizer steps along q with server_lr

for the loss federated_weight (mean of f_i) + central_weight f_c. If f_c needs no data, like a regulariser, this is the
usual way without mixed federated learning. If f_c is over examples, they are sent to the clients (the paper's example
transfer); in each step all clients use the same examples. Of the drift only that of FedAvg remains, none from f_c.

The weights sum to 1, and are both 1/2 by default. With server_lr equal to client_lr (delta_lr 1) and plain SGD on the
server this is model averaging. central_batch_size is the number of the server's examples that every client uses in a
step, by default clients_per_round batch_size; it must be given with local_epochs. weight_decay is a part of f_i;
clip_norm and the client optimizer act on g_k. train_loss and the task's metrics are those of the clients' losses.
Exchanges: one a round, the model down and a pseudo-gradient up, and the server's examples down if f_c has any (all of
them once a round if batches are full). A local step counts as two gradients. Nothing is stored.

Source: "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein et al. 2022), the baseline
of section 5.3 and the example transfer of section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.contracts import RoundGradients
from trainers.engine.rounds.central_branch import MixedLoss
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.trial import mixed_values as mixing

ROLES = {"client": "any"}
ONE_UPLOAD = True
CENTRAL = True
complete = mixing.complete
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
}
INACTIVE = {"client_lr": ({"local_steps": 1},)}
round_gradients = RoundGradients(per_step=1, central_per_step=1)


@dataclass(frozen=True)
class Hyper(MixedLoss):
    """Hyperparameters of FedAvg with the server's loss on the clients."""


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    weights = (hyper.federated_weight, hyper.central_weight)
    done = cohort.joined(state.params, hyper.work(), weights, hyper.central_batch_size)
    return state.step(cohort.mean(done))
