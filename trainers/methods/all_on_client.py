"""All on the client: FedAvg whose clients compute the server's loss too, the baseline of mixed federated learning.

    y_1 = x,   g_k = federated_weight grad f_i(y_k; batch k) + central_weight grad f_c(y_k; central batch k)
    y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = mean over the cohort of g_1 + ... + g_K;   the server optimizer steps along q with server_lr

for the loss federated_weight (mean of f_i) + central_weight f_c. Where f_c needs no data, as a regulariser, this is
what is done without mixed federated learning; where it is of examples, they are sent to the clients (the paper's
example transfer), the same to all of a step. Only the drift of FedAvg is left, none from the server's loss.

federated_weight, central_weight in [0, 1] of sum 1, both 1/2 by default: federated_weight 1 is FedAvg. client_lr at
least 0: 0 is large-batch SGD. server_lr above 0: equal to client_lr (delta_lr 1) with plain SGD on the server it is
model averaging. local_steps at least 1: 1 is SGD on the mixed loss; or local_epochs, with central_batch_size.
central_batch_size at least 1, the server's examples that every client has in a step, by default as many as all clients
of a step have of their own. A client optimizer other than sgd turns each g_k into a step's direction, and q is the sum
of these; clip_norm above 0 bounds the norm of a g_k. The aggregation is by numbers of examples unless the trial says
otherwise; train_loss and the task's metrics are of the clients' losses.
Exchanges: one a round, the model down and a pseudo-gradient up, and the server's examples down where there are any (all
of them once a round where batches are full). A local step counts as two gradients. Nothing is stored.

Source: "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein et al. 2022), the baseline
of section 5.3 and the example transfer of section 3.
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
    """Hyperparameters of FedAvg with the server's loss on the clients."""

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
        None, low=1, unit="examples", traced=False, doc="of the server's loss; null is what all clients of a step have"
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
    weights = (hyper.federated_weight, hyper.central_weight)
    done = cohort.joined(state.params, work, weights, hyper.central_batch_size)
    return state.step(cohort.mean(done.pseudo_gradient))
