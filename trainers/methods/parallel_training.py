"""Parallel training: a round of FedAvg and local steps on the server's own data, side by side, and both changes added.

    clients: g_k = federated_weight grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
             q = mean over the cohort of g_1 + ... + g_K;   the server optimizer steps along q with server_lr: x_f
    server:  c_k = central_weight grad f_c(z_k; batch k),   z_{k+1} = z_k - central_lr c_k,   k = 1 .. central_steps
    x <- x + merge_lr ((x_f - x) + (z_{J+1} - x)),   y_1 = z_1 = x,   J = central_steps

for the loss federated_weight (mean of f_i) + central_weight f_c. For more than one step the limit is beside its
minimizer, the further the larger client_lr local_steps is, unless both parts have the same Hessian or minimizer.

federated_weight, central_weight in [0, 1] of sum 1, both 1/2 by default: federated_weight 1 is FedAvg, 0 is training on
the server alone. central_lr at least 0, by default server_lr (client_lr delta_lr), through every schedule; one that is
given stays as it is; give one beside an adaptive server. central_steps at least 1, by default local_steps.
central_batch_size at least 1, by default the examples that a step of the whole cohort has. merge_lr above 0, 1 by
default. merge_by "sum" is the above, "mean" halves merge_lr. client_lr at least 0: 0 is large-batch SGD of the clients.
server_lr above 0: equal to client_lr (delta_lr 1, the paper's choice) with plain SGD on the server it is model
averaging. local_steps at least 1; or local_epochs, with central_steps. The server's branch and the merge are plain SGD,
or other optimizers of the trial, `central` and `merge`, which remember from round to round: then give central_lr, and a
merge_lr of the size of a step. A client optimizer other than sgd turns each g_k into a step's direction, and q is the
sum of these; clip_norm above 0 bounds the norm of a g_k. The aggregation is by numbers of examples unless the trial
says otherwise; train_loss and the task's metrics are of the clients' losses.
Exchanges: one a round, the model down and a pseudo-gradient up. The server stores what its optimizers remember.

Source: "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein et al. 2022), algorithm 1
without the transfer of gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.engine.local.loop import LocalWork
from trainers.engine.rounds.central_branch import Branches, merge, server_branch
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable
from trainers.trial import mixed_values as mixing

ROLES = {"client": "any", "central": "any", "merge": "any"}
CENTRAL = True
WEIGHTING = "examples"
complete = mixing.complete


@dataclass(frozen=True)
class Hyper(Branches):
    """Hyperparameters of parallel training."""

    client_lr: Tensor = tunable(low=0, limit="0 is large-batch SGD", doc="step size of the clients")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", limit="1 is mixed SGD", doc="gradients a round")
    federated_weight: Tensor = tunable(
        None, low=0, high=1, limit="1 is FedAvg", doc="of the clients' loss; null is 1 - central_weight, else 1/2"
    )
    central_weight: Tensor = tunable(
        None, low=0, high=1, limit="0 is FedAvg", doc="of the server's own loss; null is 1 - federated_weight"
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
    work = LocalWork(
        hyper.client_lr,
        hyper.local_steps,
        local_epochs=hyper.local_epochs,
        optimizer=cohort.optimizer,
        clip_norm=hyper.clip_norm,
    )
    clients = cohort.local(state.params, work, loss_weight=hyper.federated_weight)

    server = server_branch(cohort.central, hyper, state)
    return merge(hyper, state, state.step(cohort.mean(clients.pseudo_gradient)), server)
