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

displacement 0 is FedAvg, with prox FedProx; client_lr (local_steps - 1) / 2 is SCAFFOLD to second order.
displacement_source says where g_i comes from: "full" is all data of a client and counts as the mini-batches of one pass
over them, "batch" is its first batch, which counts as one. weight_decay acts at the displaced point, as a part of f_i.
Exchanges: two a round, the model down and g_i up, then g down and a pseudo-gradient up, and nothing is stored; with
reuse_mean_gradient one, the model and m down and a pseudo-gradient up (with a client optimizer other than sgd the sum
of the g_ik as well, for then m does not follow from q), and the server stores m.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), algorithms 2 and
3; reuse after its section 5, prox after its section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.engine.local.local_steps import LocalSteps
from trainers.engine.local.work import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "any"}


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
    """What the server remembers before the first round: no mean gradient, where it is to be reused."""
    return {"mean_gradient": torch.zeros_like(params)} if hyper.reuse_mean_gradient else {}


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round."""
    full = hyper.displacement_source == "full"
    if not hyper.reuse_mean_gradient:
        gradients = cohort.gradients(state.params, full=full)
        mean = cohort.mean(gradients)
        work = _displaced(hyper, gradients - mean)
        return state.step(cohort.mean(cohort.local(state.params, work, down=[mean]).pseudo_gradient))
    mean = state.memory["mean_gradient"]
    gradients = cohort.own_gradients(state.params, weight_decay=hyper.weight_decay, full=full)
    work = _displaced(hyper, gradients - mean)
    done = cohort.local(state.params, work, down=[mean], up=1 if cohort.optimizer is None else 2)
    return state.step(cohort.mean(done.pseudo_gradient)).remember(mean_gradient=cohort.mean(done.mean_gradient))


def _displaced(hyper: Hyper, gap: Tensor) -> LocalWork:
    """The local work, displaced by each client's gradient less the mean, (T, M, P)."""
    displacement = hyper.displacement * gap
    if hyper.displacement_form == "each_step":
        terms = {"evaluation_offset": displacement}
    else:  # the pull is to where the client starts, not to x
        terms = {"displacement": displacement, "correction": -hyper.prox * displacement}
    return hyper.work(**terms, prox=hyper.prox, sum_gradients=hyper.reuse_mean_gradient)
