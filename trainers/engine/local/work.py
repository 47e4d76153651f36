"""What clients do between receiving a model and sending their result, its hyperparameters, and the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.local.client_optimizer import ClientOptimizer
from trainers.engine.local.step_plan import StepPlan
from trainers.engine.oracles.oracle import weighted_mean
from trainers.hyperparameters import tunable

GRADIENTS = "gradients"
"""Key of the sums of gradients in `Local.kept`."""


@dataclass(frozen=True)
class LocalWork:
    """What the clients of a round do; shapes broadcast against (T, M, P).

    Client i starts at y_1 = x + displacement, with x the broadcast model. With F_i(y) = f_i(y) + weight_decay |y|^2/2
    the k-th local gradient is

        g_k = gradient_scale (grad F_i(y_k + evaluation_offset; batch k) - grad F_i(anchor; batch k))
              + prox (y_k - x) + correction

    without the terms that are None. It is the direction of the k-th step of the plan, or a client optimizer makes the
    direction from it.

    Args:
        plan: numbers of steps, their rates and their weights.
        displacement: (T, M, P) added to the initial model of a client.
        evaluation_offset: (T, M, P) added to a client's model before its loss is differentiated.
        anchor: (T, 1, P) a model whose gradients on the same batches are subtracted; a step then costs two gradients.
        gradient_scale: (T, 1, 1), at least 0; multiplies the gradients, like a weight of the loss.
        weight_decay: (T, 1, 1) L2 coefficient of the loss. A decoupled client optimizer adds it, unscaled, to its
            directions instead.
        prox: (T, 1, 1) pull to the broadcast model.
        correction: (T, 1 or M, P) added to every local gradient.
        clip_norm: (T, 1, 1) largest L2 norm of a g_k.
        optimizer: turns local gradients into directions; the weighted sums are then sums of directions. The cohort
            fills in the trial's client optimizer.
        optimizer_memory: memory from which the optimizer continues, (T, M, P) each, with the steps of each client
            (STEPS), (T, M, 1); None starts anew. The cohort fills it in.
        sum_gradients: also return the sums of the g_k themselves if an optimizer or relative rates give other sums.
    """

    plan: StepPlan
    displacement: Tensor | None = None
    evaluation_offset: Tensor | None = None
    anchor: Tensor | None = None
    gradient_scale: Tensor | None = None
    weight_decay: Tensor | None = None
    prox: Tensor | None = None
    correction: Tensor | None = None
    clip_norm: Tensor | None = None
    optimizer: ClientOptimizer | None = None
    optimizer_memory: Mapping[str, Tensor] | None = None
    sum_gradients: bool = False

    @property
    def decoupled(self) -> bool:
        """Whether weight decay is added to the directions instead of the gradients."""
        return self.optimizer is not None and self.optimizer.decoupled

    @cached_property
    def decays(self) -> bool:
        """Whether weight decay is a part of any gradient."""
        return self.weight_decay is not None and not self.decoupled and bool(self.weight_decay.any())

    @property
    def gradients_per_step(self) -> int:
        """Cost of a step, in gradients per client."""
        return 1 if self.anchor is None else 2


@dataclass(frozen=True)
class ServerSteps:
    """Hyperparameters of every method. Methods whose clients send gradients and take no local steps need only these.

    A method's Hyper derives from this class or from `LocalSteps` and adds its own. A method redeclares a field that
    differs, and withdraws one that makes no sense (`trainers.hyperparameters.withdrawn`).
    """

    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")
    clip_norm: Tensor | None = tunable(
        None,
        kind="float",
        low=0,
        low_open=True,
        none_is=math.inf,
        unit="norm of a gradient",
        limit="null is no clipping",
        doc="largest L2 norm of a local gradient, after any correction",
    )


@dataclass(frozen=True)
class LocalSteps(ServerSteps):
    """Hyperparameters of every method whose clients take local steps."""

    client_lr: Tensor = tunable(low=0, limit="0 is large-batch SGD", doc="step size of the clients")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", limit="1 is FedSGD", doc="gradients a round")
    local_epochs: int | None = tunable(
        None, low=1, unit="passes over a client's data", traced=False, doc="instead of local_steps"
    )

    @cached_property
    def step_plan(self) -> StepPlan:
        """The plan of the local steps, all with weight 1 and rate client_lr."""
        return StepPlan(self.client_lr, self.local_steps, self.local_epochs)

    def work(self, gradient_weights: Tensor | None = None, **terms: Any) -> LocalWork:
        """The local work with these settings.

        Args:
            gradient_weights: weights of the steps, see StepPlan.
            terms: further fields of LocalWork from the method.
        """
        if gradient_weights is not None:
            terms["plan"] = replace(self.step_plan, gradient_weights=gradient_weights)
        return replace(self._own_work, **terms) if terms else self._own_work

    @cached_property
    def _own_work(self) -> LocalWork:
        return LocalWork(self.step_plan, weight_decay=self.weight_decay, clip_norm=self.clip_norm)


@dataclass(frozen=True)
class Local:
    """Result of the local work.

    Args:
        lift: computes the pseudo-gradients (T, M, P).
        steps: (T, M) number of steps that each client took.
        first_loss: (T, M) losses of the initial models on the first batches.
        kept: sums that the client optimizer returns (ClientOptimizer.returned), (T, M, P) each, by name.
        average: computes the mean of the pseudo-gradients, if that costs less than all of them (Frame.mean), else None.
        optimizer_memory: as in LocalWork, after each client's last step; None if the optimizer started anew.
    """

    lift: Callable[[], Tensor]
    steps: NDArray[np.int64]
    first_loss: Tensor
    kept: Mapping[str, Tensor] = field(default_factory=dict)
    average: Callable[[Tensor], Tensor | None] | None = None
    optimizer_memory: Mapping[str, Tensor] | None = None

    @cached_property
    def pseudo_gradient(self) -> Tensor:
        """(T, M, P) weighted sum of each client's local gradients, not multiplied by client_lr."""
        return self.lift()

    def mean(self, weights: Tensor) -> Tensor:
        """(T, 1, P) mean of the pseudo-gradients with weights (M,) of the clients, or (T, M)."""
        mean = None if self.average is None else self.average(weights)
        return weighted_mean(self.pseudo_gradient, weights) if mean is None else mean

    @property
    def gradient_sum(self) -> Tensor:
        """(T, M, P) sums of each client's local gradients; needs work with sum_gradients."""
        return self.kept.get(GRADIENTS, self.pseudo_gradient)

    @property
    def mean_gradient(self) -> Tensor:
        """(T, M, P) means of each client's local gradients over its own steps; needs work with sum_gradients."""
        sums = self.gradient_sum
        return sums / torch.tensor(self.steps).clamp(min=1).to(sums).unsqueeze(-1)
