"""SCAFFOLD: every local gradient is corrected by the mean control variate minus the client's own.

    c_i = control variate of client i,   c = their mean,   y_1 = x
    d_k = grad f_i(y_k; batch k) + correction (c - c_i),   y_{k+1} = y_k - client_lr d_k,   k = 1 .. local_steps
    q = mean over the cohort of d_1 + ... + d_K;   the server optimizer steps along q with server_lr

With variates "fresh", c_i = grad f_i(x) is computed in every round, and c is the mean over the cohort.
displacement_source is the data of c_i: "full" is all data of a client, which counts as the mini-batches of one pass;
"batch" is its first batch, which counts as one. "stored" is the original algorithm: c_i starts at 0, the clients of a
round replace their c_i after the round, and c is the weighted mean over all clients. variate_update names the new c_i:
"path" (option II) is the mean of the client's local gradients, c_i - c + (d_1 + ... + d_K) / K, at no cost; it uses the
d_k, not the directions of a client optimizer. "gradient" (option I) is grad f_i(x) on the data of displacement_source,
one more gradient, counted in the same way. The original's server step size is server_lr / client_lr (delta_lr).

On losses with equal Hessians there is no drift; on any quadratics the limit is the minimizer of the mean loss.
client_lr 0 is large-batch SGD with fresh variates, since the corrections sum to 0, and similar to SAGA with stored
ones. One local step with fresh variates is FedSGD. weight_decay is a part of f_i; clip_norm and the client optimizer
act on d_k.
Exchanges: two a round with fresh variates, the model down and c_i up, then c down and a pseudo-gradient up; one a round
with stored ones, the model and c down, a pseudo-gradient and the change of c_i up. With stored ones every client stores
one model-sized tensor and the server one; with fresh ones nothing is stored.

Source: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning" (Karimireddy, Kale, Mohri, Reddi, Stich,
Suresh 2020), algorithm 1; with fresh variates in the form of "Implicit Gradient Alignment in Distributed and Federated
Learning" (Dandi, Barba, Jaggi 2022), algorithm 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "any"}
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True, "also": [0.0]},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [2, 4, 8, 16, 32]},
}
INACTIVE = {
    "client_lr": ({"local_steps": 1},),
    "variate_update": ({"variates": "fresh"},),
    "displacement_source": ({"variates": "stored", "variate_update": "path"},),
}
PSEUDO_GRADIENT = "sum"
PARTIAL_WORK = True


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of SCAFFOLD."""

    correction: Tensor = tunable(1.0, low=0, high=1, limit="0 is FedAvg", doc="of every local gradient, times c - c_i")
    variates: str = tunable(
        "fresh", choices=("fresh", "stored"), traced=False, doc="c_i taken anew in every round, or kept by the clients"
    )
    variate_update: str = tunable(
        "path",
        choices=("path", "gradient"),
        traced=False,
        doc="new stored c_i: mean local gradient (option II), or gradient at x (option I)",
    )
    displacement_source: str = tunable(
        "full", choices=("full", "batch"), traced=False, doc="data of the control variates that are gradients at x"
    )


def stored(hyper: Hyper) -> tuple[str, ...]:
    """Client state: the control variate, if variates are stored."""
    return ("variate",) if hyper.variates == "stored" else ()


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """Server memory before the first round: the mean of the stored variates."""
    return {"mean_variate": torch.zeros_like(params)} if hyper.variates == "stored" else {}


def round_gradients(values: Mapping[str, Any]) -> RoundGradients:
    """Gradients of the local steps, and the gradient at x where variates are gradients."""
    if values["variates"] == "stored" and values["variate_update"] == "path":
        return RoundGradients(per_step=1)
    return RoundGradients(per_step=1).and_at(values["displacement_source"])


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    if hyper.variates == "stored":
        return _stored(hyper, state, cohort)
    variates = cohort.gradients(state.params, full=hyper.displacement_source == "full")
    mean = cohort.mean(variates)
    work = hyper.work(correction=hyper.correction * (mean - variates))
    return state.step(cohort.mean(cohort.local(state.params, work, down=[mean])))


def _stored(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """A round with stored variates; the change of the mean is weighted by the cohort's share of all clients."""
    variates, mean = cohort.stored["variate"], state.memory["mean_variate"]
    correction = hyper.correction * (mean - variates)
    path = hyper.variate_update == "path"
    work = hyper.work(correction=correction, sum_gradients=path)
    done = cohort.local(state.params, work, down=[mean], up=2)
    if path:
        new = done.mean_gradient - correction
    else:
        full = hyper.displacement_source == "full"
        new = cohort.own_gradients(state.params, weight_decay=hyper.weight_decay, full=full)
    mean = mean + cohort.share * cohort.mean(new - variates)
    return state.step(cohort.mean(done)).remember(mean_variate=mean).store(variate=new)
