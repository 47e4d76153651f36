"""FedGA: clients start at models displaced as if the other clients had already moved them, so that gradients align.

    g_i = grad f_i(x),   g = mean over the cohort of g_i,   u_i = displacement (g_i - g),   y_1 = x + u_i
    g_ik = grad f_i(y_k; batch k) + prox (y_k - y_1),   y_{k+1} = y_k - client_lr g_ik,   k = 1 .. local_steps
    q = mean over the cohort of g_i1 + ... + g_iK;   the server optimizer steps along q with server_lr

displacement_form "once" is the form above. With "each_step" the client starts at x and takes every gradient at a
displaced point, g_ik = grad f_i(y_k + u_i; batch k) + prox (y_k - x). Both give the same result, because the u_i sum to
0 over the cohort and clients return gradients, not models. "once" costs nothing per step. A round lowers the loss plus
displacement times the misalignment (1 / 2n) sum ||g_i - g||^2.

reuse_mean_gradient saves the exchange that computes g: clients displace by g_i - m instead, with m the mean of the last
round's local gradients (q / K with plain steps), initially 0. These displacements do not sum to 0, but need not be
undone, because clients return gradients. When training settles, m is 0, and each client is displaced by its own
gradient alone: the limit differs from the limit without reuse, by less if the clients' gradients agree better.

displacement 0 is FedAvg (FedProx with prox); client_lr (local_steps - 1) / 2 is SCAFFOLD to second order.
displacement_source is the data of g_i: "full" is all data of a client, which counts as the mini-batches of one pass;
"batch" is its first batch, which counts as one. weight_decay acts at the displaced point, as a part of f_i.
Exchanges: two a round, the model down and g_i up, then g down and a pseudo-gradient up, and nothing is stored; with
reuse_mean_gradient one, the model and m down and a pseudo-gradient up (with a client optimizer other than sgd the sum
of the g_ik as well, for then m does not follow from q), and the server stores m.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), algorithms 2 and
3; reuse after its section 5, prox after its section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps, LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "any"}
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True, "also": [0.0]},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
    "displacement": {"float": [1e-3, 10.0], "log": True},
}
INACTIVE = {
    "client_lr": ({"local_steps": 1},),
    "prox": ({"client_lr": 0, "displacement_form": "each_step"},),
}
PSEUDO_GRADIENT = "sum"


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of FedGA."""

    client_lr: Tensor = tunable(low=0, limit="0 is GradAlign on a larger batch", doc="step size of the clients")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", limit="1 is GradAlign", doc="gradients a round")
    displacement: Tensor = tunable(
        low=0, unit="model / gradient", limit="0 is FedAvg", doc="clients start at x + displacement (g_i - g)"
    )
    displacement_form: str = tunable(
        "once", choices=("once", "each_step"), traced=False, doc="the start displaced, or every gradient's point: equal"
    )
    displacement_source: str = tunable(
        "full", choices=("full", "batch"), traced=False, doc="data of the gradients g_i that displace"
    )
    reuse_mean_gradient: bool = tunable(
        False, traced=False, doc="the last round's mean local gradient for g: one exchange fewer"
    )
    prox: Tensor = tunable(0.0, low=0, limit="0 is no pull", doc="pull to where the client starts")


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """Server memory before the first round: a mean gradient of 0, if it is reused."""
    return {"mean_gradient": torch.zeros_like(params)} if hyper.reuse_mean_gradient else {}


def round_gradients(values: Mapping[str, Any]) -> RoundGradients:
    """Gradients of the local steps, and the gradient that displaces the client's start."""
    return RoundGradients(per_step=1).and_at(values["displacement_source"])


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    full = hyper.displacement_source == "full"
    if not hyper.reuse_mean_gradient:
        gradients = cohort.gradients(state.params, full=full)
        mean = cohort.mean(gradients)
        work = _displaced(hyper, gradients - mean)
        return state.step(cohort.mean(cohort.local(state.params, work, down=[mean])))
    mean = state.memory["mean_gradient"]
    gradients = cohort.own_gradients(state.params, weight_decay=hyper.weight_decay, full=full)
    work = _displaced(hyper, gradients - mean)
    done = cohort.local(state.params, work, down=[mean], up=1 if cohort.optimizer is None else 2)
    return state.step(cohort.mean(done)).remember(mean_gradient=cohort.mean(done.mean_gradient))


def _displaced(hyper: Hyper, gap: Tensor) -> LocalWork:
    """The local work, displaced in proportion to `gap` (T, M, P), each client's gradient minus the mean."""
    displacement = hyper.displacement * gap
    if hyper.displacement_form == "each_step":
        terms = {"evaluation_offset": displacement}
    else:  # the pull is to the client's displaced start, not to x
        terms = {"displacement": displacement, "correction": -hyper.prox * displacement}
    return hyper.work(**terms, prox=hyper.prox, sum_gradients=hyper.reuse_mean_gradient)
