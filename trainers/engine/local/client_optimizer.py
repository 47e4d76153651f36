"""How clients step: what the local loop asks of an optimizer, and the clipping of gradients.

The cohort hands the trial's client optimizer to every LocalWork. The memory of a client's optimizer begins afresh in
every round and for every client: nothing of it is sent or stored.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor


class ClientOptimizer(Protocol):
    """How the models of the clients move, given their gradients; shapes (T, M, P).

    A client's model is y = start - client_lr U, where U is what the loop calls its total: the sum of the directions
    so far. The loop never divides by client_lr.
    """

    @property
    def returned(self) -> tuple[str, ...]:
        """Names of what it remembers that the local loop gives back, as it is at each client's last step."""
        ...

    @property
    def decoupled(self) -> bool:
        """Whether weight_decay is added to the directions and is no part of the gradients."""
        ...

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """What it remembers before the first step of a round, (T, M, P) each, laid out as `like`."""
        ...

    def step_(self, total: Tensor, memory: dict[str, Tensor], gradient: Tensor, step: int) -> None:
        """Moves the totals one step on; changes total and memory in place, and may the gradient.

        Args:
            total: (width, busy, P), U.
            memory: (width, busy, P) each.
            gradient: (width, busy, P).
            step: from 0.
        """
        ...

    def rows(self, rows: slice) -> ClientOptimizer:
        """The same for some of the trials."""
        ...


def rows_of(held: Any, rows: slice) -> Any:
    """A dataclass with some rows of every tensor in it.

    Args:
        held: a dataclass.
        rows: of the trials.
    """
    values = {field.name: getattr(held, field.name) for field in fields(held)}
    return replace(held, **{name: value[rows] for name, value in values.items() if isinstance(value, Tensor)})


def clipped_(gradient: Tensor, clip_norm: Tensor) -> Tensor:
    """Gradients scaled down, in place, to a largest L2 norm.

    Args:
        gradient: (T, M, P).
        clip_norm: (T, 1, 1) above 0; inf is no clipping.
    """
    norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    return gradient.mul_((clip_norm / norm).clamp_(max=1))
