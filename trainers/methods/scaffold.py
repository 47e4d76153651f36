"""SCAFFOLD with fresh control variates: every local gradient is corrected by what the cohort knows and the client not.

    g_i = grad f_i(x),   g = mean over the cohort of g_i,   y_1 = x
    d_k = grad f_i(y_k; batch k) + correction (g - g_i),   y_{k+1} = y_k - client_lr d_k,   k = 1 .. local_steps
    q = mean over the cohort of d_1 + ... + d_K;   the server optimizer steps along q with server_lr

The variates g_i are taken anew every round, over the cohort alone: nothing is stored. displacement_source says on what:
"full" is all data of a client and counts as the mini-batches of one pass over them, "batch" is its first batch, which
counts as one. On losses with equal Hessians the drift is gone; on any quadratics the limit is the minimizer of the mean
loss. correction in [0, 1]: 0 is FedAvg. client_lr at least 0: 0 is large-batch SGD, for the corrections add up to 0.
server_lr above 0: equal to client_lr with plain SGD on the server it is model averaging. local_steps at least 1: 1 is
FedSGD; or local_epochs, as in FedAvg. weight_decay at least 0: 0 is none.
Exchanges: two a round, the model down and g_i up, then g down and a pseudo-gradient up.

Source: "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning" (Karimireddy et al. 2020), in the form of
"Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), algorithm 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.engine.cohort import Cohort
from trainers.engine.local import LocalWork
from trainers.engine.state import State
from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Hyperparameters of SCAFFOLD."""

    client_lr: Tensor = hyper(low=0, limit="0 is large-batch SGD", doc="step size of the clients")
    server_lr: Tensor = hyper(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    local_steps: Tensor = hyper(kind="int", low=1, unit="steps", limit="1 is FedSGD", doc="gradients a round")
    correction: Tensor = hyper(1.0, low=0, high=1, limit="0 is FedAvg", doc="of every local gradient, times g - g_i")
    displacement_source: str = hyper(
        "full", choices=("full", "batch"), traced=False, doc="data of the control variates g_i"
    )
    local_epochs: int | None = hyper(
        None, low=1, unit="passes over a client's data", traced=False, doc="instead of local_steps"
    )
    weight_decay: Tensor = hyper(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")


def round(hyper: Hyper, state: State, cohort: Cohort) -> State:  # noqa: A001
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round.
        cohort: the clients of the round.
    """
    gradients = cohort.gradients(state.params, full=hyper.displacement_source == "full")
    mean = cohort.mean(gradients)
    work = LocalWork(
        hyper.client_lr,
        hyper.local_steps,
        correction=hyper.correction * (mean - gradients),
        local_epochs=hyper.local_epochs,
        weight_decay=hyper.weight_decay,
    )
    return state.step(cohort.mean(cohort.local(state.params, work, down=[mean]).pseudo_gradient))
