"""FedGA: clients start a little beside the model, where the others would have moved it, so that their gradients align.

    g_i = grad f_i(x),   g = mean over the cohort of g_i,   u_i = displacement (g_i - g),   y_1 = x + u_i
    g_ik = grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_ik,   k = 1 .. local_steps
    q = mean over the cohort of g_i1 + ... + g_iK;   the server optimizer steps along q with server_lr

displacement_form "once" is the above. In "each_step" the client starts at x and moves every point of differentiation,
g_ik = grad f_i(y_k + u_i; batch k). The u_i add up to 0 over the cohort and gradients go back, not models: the two are
equal. "once" costs nothing a step. A round lowers the loss and, with weight displacement, the misalignment
(1 / 2n) sum ||g_i - g||^2.

displacement at least 0: 0 is FedAvg; client_lr (local_steps - 1) / 2 is SCAFFOLD to second order. displacement_source
says where g_i comes from: "full" is all data of a client and counts as the mini-batches of one pass over them, "batch"
is its first batch, which counts as one. client_lr at least 0: 0 is GradAlign on a larger batch. server_lr above 0:
equal to client_lr with plain SGD on the server it is model averaging. local_steps at least 1: 1 is GradAlign; or
local_epochs, as in FedAvg. weight_decay at least 0: 0 is none; it acts at the displaced point, as a part of f_i.
Exchanges: two a round, the model down and g_i up, then g down and a pseudo-gradient up. Nothing is stored.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), algorithms 2, 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from trainers.engine.cohort import Cohort
from trainers.engine.local import LocalWork
from trainers.engine.state import State
from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Hyperparameters of FedGA."""

    client_lr: Tensor = hyper(low=0, limit="0 is GradAlign on a larger batch", doc="step size of the clients")
    server_lr: Tensor = hyper(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    local_steps: Tensor = hyper(kind="int", low=1, unit="steps", limit="1 is GradAlign", doc="gradients a round")
    displacement: Tensor = hyper(
        low=0, unit="model / gradient", limit="0 is FedAvg", doc="clients start at x + displacement (g_i - g)"
    )
    displacement_form: str = hyper(
        "once", choices=("once", "each_step"), traced=False, doc="the start displaced, or every gradient's point: equal"
    )
    displacement_source: str = hyper(
        "full", choices=("full", "batch"), traced=False, doc="data of the gradients g_i that displace"
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
    displacement = hyper.displacement * (gradients - mean)
    work = LocalWork(
        hyper.client_lr, hyper.local_steps, local_epochs=hyper.local_epochs, weight_decay=hyper.weight_decay
    )
    if hyper.displacement_form == "once":
        done = cohort.local(state.params, replace(work, displacement=displacement), down=[mean])
    else:
        work = replace(work, correction=hyper.weight_decay * displacement)  # the L2 gradient's own displacement
        done = cohort.local(state.params, work, down=[mean], gradients_at=displacement)
    return state.step(cohort.mean(done.pseudo_gradient))
