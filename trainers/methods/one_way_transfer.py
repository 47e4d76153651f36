"""One-way gradient transfer: FedAvg whose clients add the gradient of the server's own loss to each of theirs.

    a = central_weight grad f_c(x)
    y_1 = x,   d_k = federated_weight grad f_i(y_k; batch k) + a,   y_{k+1} = y_k - client_lr d_k
    k = 1 .. local_steps
    q = mean over the cohort of d_1 + ... + d_K;   the server optimizer steps along q with server_lr

for the loss federated_weight (mean of f_i) + central_weight f_c. Its minimizer is a limit for clients of equal Hessians
or one local step; unlike Hessians leave the drift of FedAvg. Where f_c bends much more than the clients' losses, many
local steps make it unstable, for a does not change on the way.

federated_weight, central_weight in [0, 1] of sum 1, both 1/2 by default: federated_weight 1 is FedAvg, 0 is SGD on the
server alone. central_batch_size at least 1, the examples that a is taken on, by default as many as the whole cohort has
in the round (local_steps of its steps), or all where clients have full batches. client_lr at least 0: 0 is large-batch
SGD. server_lr above 0: equal to client_lr (delta_lr 1, the paper's choice) with plain SGD on the server it is model
averaging. local_steps at least 1: 1 is SGD on the mixed loss, as parallel training; or local_epochs, with
central_batch_size. A client optimizer other than sgd turns each d_k into a step's direction, and q is the sum of these;
clip_norm above 0 bounds the norm of a d_k. The aggregation is by numbers of examples unless the trial says otherwise;
train_loss and the task's metrics are of the clients' losses.
Exchanges: one a round, the model and a down and a pseudo-gradient up. Nothing is stored.

Source: "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein et al. 2022), algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.engine.local.client_optimizer import Clipped
from trainers.engine.local.loop import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable
from trainers.trial import mixed_values as mixing

ROLES = {"client": "any"}
CENTRAL = True
WEIGHTING = "examples"
complete = mixing.complete


@dataclass(frozen=True)
class Hyper(Clipped):
    """Hyperparameters of one-way gradient transfer."""

    client_lr: Tensor = tunable(low=0, limit="0 is large-batch SGD", doc="step size of the clients")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", limit="1 is mixed SGD", doc="gradients a round")
    federated_weight: Tensor = tunable(
        None, low=0, high=1, limit="1 is FedAvg", doc="of the clients' loss; null is 1 - central_weight, else 1/2"
    )
    central_weight: Tensor = tunable(
        None, low=0, high=1, limit="0 is FedAvg", doc="of the server's own loss; null is 1 - federated_weight"
    )
    central_batch_size: int | None = tunable(
        None, low=1, unit="examples", traced=False, doc="of the central gradient; null is what a whole round has"
    )
    local_epochs: int | None = tunable(
        None, low=1, unit="passes over a client's data", traced=False, doc="instead of local_steps"
    )


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round.
        cohort: the clients of the round, and the server's data.
    """
    size = hyper.central_batch_size
    batches = hyper.local_steps if size is None else None
    central = cohort.central.gradient(state.params, hyper.central_weight, size, batches)
    work = LocalWork(
        hyper.client_lr,
        hyper.local_steps,
        correction=central,
        local_epochs=hyper.local_epochs,
        optimizer=cohort.optimizer,
        clip_norm=hyper.clip_norm,
    )
    done = cohort.local(state.params, work, down=[central], loss_weight=hyper.federated_weight)
    return state.step(cohort.mean(done.pseudo_gradient))
