"""MAML, exactly: clients return the gradient of the loss after adaptation, through all adaptation steps.

    y_1 = x,   y_{k+1} = y_k - client_lr (grad f_i(y_k; batch k) + prox (y_k - x)),   k = 1 .. local_steps
    q = mean over the cohort of the gradient with respect to x of f_i(y_{K+1}; batch K + 1),   K = local_steps
    the server optimizer steps along q with server_lr

The gradient is computed by Hessian-vector products along the path. By default a step uses the same batch for its
gradient and its Hessian, like automatic differentiation; this is biased for mini-batches. With unbiased, each Hessian
has its own batch. In few-shot tasks `batching: by_class` draws batches with k examples of each class. local_steps is
the number of adaptation steps (one less than local_steps of FOMAML). prox above 0 is proximal MAML. weight_decay is a
part of f_i, and is differentiated.
Exchanges: one a round, the model down and a gradient up. A Hessian-vector product counts as two gradients: 3 K + 1 a
round. Nothing is stored; a client holds its K + 1 models while it works.

Source: "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks" (Finn, Abbeel, Levine 2017), in the form of
"Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable, withdrawn

ROLES = {"client": "none: its local steps are plain gradient descent"}
ONE_UPLOAD = True
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True, "also": [0.0]},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16]},
}
INACTIVE = {"prox": ({"client_lr": 0},)}
PSEUDO_GRADIENT = "last"
round_gradients = RoundGradients(per_step=1 + 2, batches=1)  # a step: a gradient and a Hessian product


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of MAML."""

    client_lr: Tensor = tunable(low=0, limit="0 is FedSGD on the last batch", doc="step size of the adaptation")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean gradient")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", doc="adaptation steps, differentiated through")
    prox: Tensor = tunable(0.0, low=0, limit="0 is no pull", doc="pull of the adaptation to the broadcast model")
    unbiased: bool = tunable(False, traced=False, doc="independent batches for Hessians and gradients")
    local_epochs: int | None = withdrawn("the adaptation is a number of steps, with one more batch after the last")
    clip_norm: Tensor | None = withdrawn("the adaptation steps are differentiated")


def round_batches(values: Mapping[str, Any]) -> int:
    """One batch for each step, a second one if Hessians have their own, and one after the last step."""
    return int(values["local_steps"]) * (2 if values.get("unbiased") else 1) + 1


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    done = cohort.meta_gradients(state.params, hyper.work(prox=hyper.prox), unbiased=hyper.unbiased)
    return state.step(cohort.mean(done))
