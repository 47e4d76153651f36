"""FedGA: clients start a little beside the model, where the others would have moved it, so that their gradients align.

    g_i = grad f_i(x),   g = mean over the cohort of g_i,   u_i = displacement (g_i - g),   y_1 = x + u_i
    g_ik = grad f_i(y_k; batch k) + prox (y_k - y_1),   y_{k+1} = y_k - client_lr g_ik,   k = 1 .. local_steps
    q = mean over the cohort of g_i1 + ... + g_iK;   the server optimizer steps along q with server_lr

displacement_form "once" is the above. In "each_step" the client starts at x and moves every point of differentiation,
g_ik = grad f_i(y_k + u_i; batch k) + prox (y_k - x). The u_i add up to 0 over the cohort and gradients go back, not
models: the two are equal. "once" costs nothing a step. A round lowers the loss and, with weight displacement, the
misalignment (1 / 2n) sum ||g_i - g||^2.

reuse_mean_gradient spares the exchange in which g is found: clients displace by g_i - m instead, m the mean of the last
round's local gradients (q / K with plain steps), 0 at first. These displacements do not add up to 0; that they are
undone at the end of the round, as they must be, is no step of its own, because gradients go back. Where training
settles m is 0 and the displacement is that of each client's gradient alone: another point than without reuse, closer
the better clients agree.

displacement at least 0: 0 is FedAvg, with prox FedProx; client_lr (local_steps - 1) / 2 is SCAFFOLD to second order.
displacement_source says where g_i comes from: "full" is all data of a client and counts as the mini-batches of one pass
over them, "batch" is its first batch, which counts as one. client_lr at least 0: 0 is GradAlign on a larger batch.
server_lr above 0: equal to client_lr with plain SGD on the server it is model averaging. local_steps at least 1: 1 is
GradAlign; or local_epochs, as in FedAvg. prox at least 0: 0 is no pull. weight_decay at least 0: 0 is none; it acts at
the displaced point, as a part of f_i. client optimizer and clip_norm as in FedAvg.
Exchanges: two a round, the model down and g_i up, then g down and a pseudo-gradient up, and nothing is stored; with
reuse_mean_gradient one, the model and m down and a pseudo-gradient up (with a client optimizer other than sgd the sum
of the g_ik as well, for then m does not follow from q), and the server stores m.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), algorithms 2 and
3; reuse after its section 5, prox after its section 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainers.engine.local.client_optimizer import Clipped
from trainers.engine.local.loop import Local, LocalWork
from trainers.engine.local.recorded import mean_gradients, recorded
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "any"}


@dataclass(frozen=True)
class Hyper(Clipped):
    """Hyperparameters of FedGA."""

    client_lr: Tensor = tunable(low=0, limit="0 is GradAlign on a larger batch", doc="step size of the clients")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
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
    local_epochs: int | None = tunable(
        None, low=1, unit="passes over a client's data", traced=False, doc="instead of local_steps"
    )
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """What the server remembers before the first round: no mean gradient, where it is to be reused.

    Args:
        hyper: traced fields (T, 1, 1).
        params: (T, 1, P).
    """
    return {"mean_gradient": torch.zeros_like(params)} if hyper.reuse_mean_gradient else {}


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round.
        cohort: the clients of the round.
    """
    full = hyper.displacement_source == "full"
    if not hyper.reuse_mean_gradient:
        gradients = cohort.gradients(state.params, full=full)
        mean = cohort.mean(gradients)
        return state.step(cohort.mean(_displaced(hyper, state, cohort, gradients - mean, mean).pseudo_gradient))
    mean = state.memory["mean_gradient"]
    gradients = cohort.own_gradients(state.params, full=full)
    if not cohort.decoupled:
        gradients = gradients + hyper.weight_decay * state.params
    done = _displaced(hyper, state, cohort, gradients - mean, mean)
    state = state.step(cohort.mean(done.pseudo_gradient))
    return state.remember(mean_gradient=cohort.mean(mean_gradients(done)))


def _displaced(hyper: Hyper, state: State, cohort: Cohort, gap: Tensor, mean: Tensor) -> Local:
    """The local work, displaced.

    Args:
        hyper: of the method.
        state: before the round.
        cohort: the clients of the round.
        gap: (T, M, P), each client's gradient less the mean.
        mean: (T, 1, P), which goes down.
    """
    displacement = hyper.displacement * gap
    work = LocalWork(
        hyper.client_lr,
        hyper.local_steps,
        prox=hyper.prox,
        local_epochs=hyper.local_epochs,
        weight_decay=hyper.weight_decay,
        optimizer=cohort.optimizer,
        clip_norm=hyper.clip_norm,
    )
    up = 1
    if hyper.reuse_mean_gradient:
        up, work = 1 if work.optimizer is None else 2, recorded(work)
    if hyper.displacement_form == "once" or cohort.decoupled:  # decay beside the gradients is of the displaced model
        started = replace(work, displacement=displacement, correction=-hyper.prox * displacement)  # pull to the start
        return cohort.local(state.params, started, down=[mean], up=up)
    moved = replace(work, correction=hyper.weight_decay * displacement)  # the L2 gradient's own displacement
    return cohort.local(state.params, moved, down=[mean], up=up, gradients_at=displacement)
