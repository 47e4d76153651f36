"""Coordinates in which the local loop keeps running sums of gradients. A model may offer cheaper ones."""

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
        scale: (T, 1, 1), equal to 1 - client_lr pull; None is 1.
        shift: (T, 1 or M, P); None is 0.
        moving: whether any model moves before its last gradient.
        pull: (T, 1, 1); None is 0.
        steps: the largest number of steps of any trial.
        rate: client_lr as a number if there is one trial, and a frame may move its models instead of keeping U, as
            (start - y) / client_lr is exact enough; else None.
    """

    start: Tensor
    client_lr: Tensor
    scale: Tensor | None
    shift: Tensor | None
    moving: bool
    pull: Tensor | None = None
    steps: int = 1
    rate: float | None = None


class Frame(Protocol):
    """Coordinates for running sums of gradients: any linear function of the gradients.

    Attributes:
        totals: running sums, (T, clients, numbers) each, for all clients of the cohort; initially 0.
    """

    totals: list[Tensor]

    def add_(self, step: int, width: int, busy: int, want_loss: bool) -> Tensor | None:
        """Advances the sums of the first `width` trials and `busy` clients by one step.

        Returns:
            Losses (width, busy) before the step if `want_loss`, else None.
        """
        ...

    def lift(self, sums: list[Tensor]) -> Tensor:
        """Converts sums in these coordinates, shaped like `totals`, to gradients (T, M, P), client-major."""
        ...

    def mean(self, sums: list[Tensor], weights: Tensor) -> Tensor | None:
        """(T, 1, P) mean of the gradients that `lift` returns, with weights (M,); None if it costs as much as they."""
        return None
