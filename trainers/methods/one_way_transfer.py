"""One-way gradient transfer: FedAvg whose clients add the gradient of the server's loss to each local gradient.

    a = central_weight grad f_c(x)
    y_1 = x,   d_k = federated_weight grad f_i(y_k; batch k) + a,   y_{k+1} = y_k - client_lr d_k
    k = 1 .. local_steps
    q = mean over the cohort of d_1 + ... + d_K;   the server optimizer steps along q with server_lr

for the loss federated_weight (mean of f_i) + central_weight f_c. The limit is its minimizer if clients have equal
Hessians or take one local step; with unequal Hessians the drift of FedAvg remains. If f_c has a much larger curvature
than the clients' losses, many local steps are unstable, because a is constant during the local steps.

The weights sum to 1, and are both 1/2 by default; federated_weight 0 is SGD on the server's data alone.
central_batch_size is the number of examples for a, by default local_steps clients_per_round batch_size, or all if
clients have full batches; it must be given with local_epochs. With server_lr equal to client_lr (delta_lr 1, the
paper's choice) and plain SGD on the server this is model averaging. weight_decay is a part of f_i; clip_norm and the
client optimizer act on d_k. train_loss and the task's metrics are those of the clients' losses.
Exchanges: one a round, the model and a down and a pseudo-gradient up. Nothing is stored.

Source: "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein et al. 2022), algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.contracts import RoundGradients
from trainers.engine.rounds.central_branch import MixedLoss
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable
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
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(MixedLoss):
    """Hyperparameters of one-way gradient transfer."""

    central_batch_size: int | None = tunable(
        None,
        low=1,
        unit="examples",
        traced=False,
        doc="of the central gradient; null is local_steps clients_per_round batch_size",
    )


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    size = hyper.central_batch_size
    batches = hyper.local_steps if size is None else None
    central = cohort.central.gradient(state.params, hyper.central_weight, size, batches)
    work = hyper.work(gradient_scale=hyper.federated_weight, correction=central)
    return state.step(cohort.mean(cohort.local(state.params, work, down=[central])))
