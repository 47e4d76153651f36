"""The contract of a client optimizer, and the clipping of gradients.

The cohort passes the trial's client optimizer to every LocalWork. Its memory starts anew in every round and for every
client, or with `state: keep` each client continues with its own (`LocalWork.optimizer_memory`); none of it is sent.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

STEPS = "steps"
"""Key of the number of steps taken, next to the optimizer's own memory, where the memory lasts longer than a round."""


class ClientOptimizer(Protocol):
    """How the models of the clients move, given their gradients; shapes (T, M, P).

    A client's model is y = start - client_lr U, where U, the total, is the sum of the directions so far, each times its
    step's relative rate (StepPlan). The loop never divides by client_lr.
    """

    @property
    def returned(self) -> tuple[str, ...]:
        """Names of the memory tensors that the local loop returns, as of each client's last step."""
        ...

    @property
    def moves_models(self) -> bool:
        """Whether `step_` also holds for models instead of totals: it only subtracts rate times the direction.

        Returned memory, which is sums like the totals, then consists of models too.
        """
        ...

    @property
    def decoupled(self) -> bool:
        """Whether weight_decay is added to the directions instead of the gradients."""
        ...

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """The memory before the first step of a round, (T, M, P) each, laid out like `like`."""
        ...

    def begin_(self, memory: dict[str, Tensor], start: Tensor, rate: float) -> None:
        """Turns the sums in the memory of `init` into models; called only if `moves_models`.

        Args:
            memory: (1, M, P) each, changed in place.
            start: (1, M or 1, P).
            rate: client_lr.
        """
        ...

    def step_(
        self,
        total: Tensor,
        memory: dict[str, Tensor],
        gradient: Tensor,
        step: int | Tensor,
        rate: Tensor | float = -1.0,
    ) -> None:
        """Subtracts rate times the direction from the totals. Changes them and the memory, and may change `gradient`.

        Args:
            total: (width, busy, P), U.
            memory: (width, busy, P) each.
            gradient: (width, busy, P).
            step: from 0: a number, or (width, busy, 1) integers if clients differ, as with `state: keep`.
            rate: a number, or (width, 1, 1): minus the step's relative rate. If `moves_models`, `total` may also be the
                models, and the rate client_lr times the relative rate.
        """
        ...

    def accumulator_(self, memory: dict[str, Tensor]) -> Tensor | None:
        """A tensor of the memory to which the step's gradient may be added, and which `step_` then gets as gradient.

        Args:
            memory: (width, busy, P) each; the tensor is prepared in place.
        """
        ...

    def rows(self, rows: slice) -> ClientOptimizer:
        """This optimizer for some of the trials."""
        ...


def rows_of(record: Any, rows: slice) -> Any:
    """A copy of a dataclass with only some rows of every tensor.

    Args:
        record: a dataclass.
        rows: the trials to keep.
    """
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return replace(record, **{name: value[rows] for name, value in values.items() if isinstance(value, Tensor)})


def clipped_(gradient: Tensor, clip_norm: Tensor) -> Tensor:
    """Scales gradients down in place to an L2 norm of at most `clip_norm`.

    Args:
        gradient: (T, M, P).
        clip_norm: (T, 1, 1) above 0; inf is no clipping.
    """
    norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    return gradient.mul_((clip_norm / norm).clamp_(max=1))
