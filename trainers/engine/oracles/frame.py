"""Coordinates in which the local loop keeps the running sums of gradients: a model may offer better ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Motion:
    """How the running sums U of gradients move the models: y = start - client_lr U, U <- scale U + shift + gradient.

    Args:
        start: (T, 1 or M, P).
        client_lr: (T, 1, 1).
        scale: (T, 1, 1); None is 1.
        shift: (T, 1 or M, P); None is 0.
        moving: whether any model moves before its last gradient.
        pull: (T, 1, 1), scale is 1 - client_lr pull; None is 0.
    """

    start: Tensor
    client_lr: Tensor
    scale: Tensor | None
    shift: Tensor | None
    moving: bool
    pull: Tensor | None = None


class Frame(Protocol):
    """Coordinates in which running sums of gradients are kept; anything linear in the gradients will do.

    Attributes:
        totals: running sums, (T, clients, numbers) each, all clients of the cohort together; 0 at first.
    """

    totals: list[Tensor]

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Moves the sums of the first `width` trials and `busy` clients one step on.

        Returns:
            Losses (width, busy) before the step, if wanted.
        """
        ...

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Sums in these coordinates, shaped as `totals`, as gradients (T, M, P), client-major."""
        ...
