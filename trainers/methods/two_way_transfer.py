"""Two-way gradient transfer: parallel training where each branch adds the other's mean gradient of the last round.

    clients: d_k = federated_weight grad f_i(y_k; batch k) + a,   y_{k+1} = y_k - client_lr d_k,   k = 1 .. local_steps
             q = mean over the cohort of d_1 + ... + d_K;   the server optimizer steps along q with server_lr: x_f
    server:  c_k = central_weight grad f_c(z_k; batch k) + b,   z_{k+1} = z_k - central_lr c_k,   k = 1 .. central_steps
    x <- x + merge_lr ((x_f - x) + (z_{J+1} - x)),   y_1 = z_1 = x,   J = central_steps
    a <- mean of the c_k, less b;   b <- mean of the cohort's d_k, less a (of this round);   both 0 at the start

for the loss federated_weight (mean of f_i) + central_weight f_c. The limit is its minimizer if clients have equal
Hessians or take one local step. b is the mean over all gradients of the cohort with the weights of the aggregation,
which the server can compute from the pseudo-gradients; equal weights give the paper's equation 10.

Each branch follows the whole loss, so their sum is a double step: merge_by "mean" takes a single step, and "sum" (the
paper's choice and the default) diverges first. With warm_start, a and b start as the gradients at x, for clients on
their first batch; this takes one more exchange in the first round, without sending the model again. The weights sum to
1, and are both 1/2 by default; federated_weight 1 is the clients alone, 0 the server alone. central_lr, central_steps,
central_batch_size, the optimizers `central` and `merge`, weight_decay and the aggregation are as in parallel_training;
clip_norm and the client optimizer act on d_k.
Exchanges: one a round, the model and a down and a pseudo-gradient up (with a client optimizer other than sgd also the
sum of the d_k, because b does not follow from the pseudo-gradient then). The server stores a, b and the memory of its
optimizers.

Source: "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein et al. 2022), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.rounds.central_branch import Branches, merge, server_branch
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable
from trainers.trial import mixed_values as mixing

ROLES = {"client": "any", "central": "any", "merge": "any"}
CENTRAL = True
complete = mixing.complete
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
}
INACTIVE = {"client_lr": ({"local_steps": 1},)}


@dataclass(frozen=True)
class Hyper(Branches):
    """Hyperparameters of two-way gradient transfer."""

    local_steps: Tensor = tunable(
        kind="int", low=1, unit="steps", limit="1 adds the last round's gradient", doc="gradients a round"
    )
    federated_weight: Tensor = tunable(
        None, low=0, high=1, doc="of the clients' loss; null is 1 - central_weight, else 1/2"
    )
    central_weight: Tensor = tunable(None, low=0, high=1, doc="of the server's own loss; null is 1 - federated_weight")
    warm_start: bool = tunable(False, traced=False, doc="begin with the gradients at the first model, not with 0")


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """Server memory before the first round: the corrections a and b, and whether they have been set."""
    return {
        "central_correction": torch.zeros_like(params),
        "federated_correction": torch.zeros_like(params),
        "begun": params.new_zeros((params.shape[0], 1, 1)),
    }


def round_gradients(values: Mapping[str, Any]) -> RoundGradients:
    """Gradients of the local steps, and with warm_start one gradient more in the first round."""
    return RoundGradients(per_step=1, once=int(values["warm_start"]))


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    x, size = state.params, hyper.central_batch_size
    central, federated = state.memory["central_correction"], state.memory["federated_correction"]
    if hyper.warm_start and not bool(state.memory["begun"].any()):
        central = cohort.central.gradient(x, hyper.central_weight, size)
        gradients = cohort.gradients(x, weight_decay=hyper.weight_decay)
        federated = hyper.federated_weight * cohort.mean(gradients)

    work = hyper.work(gradient_scale=hyper.federated_weight, correction=central, sum_gradients=True)
    clients = cohort.local(x, work, down=[central], up=1 if cohort.optimizer is None else 2)
    taken = cohort.mean(torch.tensor(clients.steps).to(x)).view(-1, 1, 1).clamp(min=1)

    server = server_branch(cohort.central, hyper, state, federated)
    after = merge(hyper, state, state.step(cohort.mean(clients)), server)
    return after.remember(
        central_correction=server.mean_gradient,
        federated_correction=cohort.mean(clients.gradient_sum) / taken - central,
        begun=torch.ones_like(state.memory["begun"]),
    )
