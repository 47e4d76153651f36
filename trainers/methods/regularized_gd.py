"""Gradient descent on the loss plus misalignment, which GradAlign and FedGA approximate, by Hessian-vector products.

    g_i = grad f_i(x),   g = mean over the cohort of g_i
    q = g + misalignment_weight mean over the cohort of H_i (g_i - g)
    the server optimizer steps along q with server_lr

The second term of q is misalignment_weight times the gradient of the misalignment (1 / 2n) sum ||g_i - g||^2. This is
the exact reference, for small problems. GradAlign takes the same step without a Hessian, to second order in its
displacement, and up to rounding on quadratics. misalignment_weight 0 is FedSGD. displacement_source is the data of g_i
and H_i: "batch" is the client's first batch; "full" is all its data, which counts as the mini-batches of one pass.
weight_decay is a part of f_i and does not change the misalignment.
Exchanges: two a round, the model down and g_i up, then g down and H_i (g_i - g) up; a Hessian-vector product counts
as two gradients. Nothing is stored.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), section 4.2 and
appendix A.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import ServerSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable, withdrawn

SPACE = {
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "misalignment_weight": {"float": [1e-3, 10.0], "log": True},
}


@dataclass(frozen=True)
class Hyper(ServerSteps):
    """Hyperparameters of gradient descent with misalignment."""

    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the regularized gradient")
    misalignment_weight: Tensor = tunable(
        low=0, unit="model / gradient", limit="0 is FedSGD", doc="of the misalignment beside the loss"
    )
    displacement_source: str = tunable(
        "batch", choices=("full", "batch"), traced=False, doc="data of gradients and Hessians"
    )
    clip_norm: Tensor | None = withdrawn("its step is of gradients and Hessian products together")


def round_gradients(values: Mapping[str, Any]) -> RoundGradients:
    """A gradient and a Hessian-vector product, which counts as two."""
    return RoundGradients().and_at(values["displacement_source"], 1 + 2)


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    full = hyper.displacement_source == "full"
    gradients = cohort.gradients(state.params, full=full)
    mean = cohort.mean(gradients)
    slope = cohort.mean(cohort.products(state.params, gradients - mean, full=full, down=[mean]))
    return state.step(mean + hyper.weight_decay * state.params + hyper.misalignment_weight * slope)
