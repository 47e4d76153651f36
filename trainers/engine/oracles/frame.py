"""Coordinates in which the local loop keeps running sums of gradients. A model may offer cheaper ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Motion:
    """How the running sums U of gradients move the models.

    y = start - client_lr U;   U <- scale U + r (gradient + shift), with scale = 1 - client_lr r pull and r the relative
    rate of the step, its rate divided by client_lr.

    Args:
        start: (T, 1 or M, P).
        client_lr: (T, 1, 1).
        pull: (T, 1, 1); None is 0.
        shift: (T, 1 or M, P); None is 0.
        moving: whether any model moves before its last gradient.
        steps: the largest number of steps of any trial.
        rate: client_lr as a number if a frame may move the models of a single trial instead of keeping U, because
            (start - y) / client_lr is exact enough; else None.
        relative_rates: (T, steps) on the CPU; None is 1 throughout.
    """

    start: Tensor
    client_lr: Tensor
    pull: Tensor | None
    shift: Tensor | None
    moving: bool
    steps: int = 1
    rate: float | None = None
    relative_rates: Tensor | None = None

    @cached_property
    def scale(self) -> Tensor | None:
        """(T, 1, 1) scale at client_lr itself; None is 1."""
        return None if self.pull is None else 1 - self.client_lr * self.pull

    def relative(self, step: int) -> float:
        """The relative rate of a step (from 0) of a single trial; needs relative rates."""
        assert self.relative_rates is not None
        return float(self.relative_rates[0, step])

    def at(self, step: int, width: int) -> tuple[Tensor | float, Tensor | None]:
        """(relative rate, scale) of a step, (width, 1, 1) each; the rate may be a number, the scale None, which is 1.

        Args:
            step: from 0.
            width: number of the first trials.
        """
        scale = None if self.scale is None else self.scale[:width]
        if self.relative_rates is None:
            return 1.0, scale
        if len(self.relative_rates) == 1:
            relative: Tensor | float = self.relative(step)
        else:
            relative = self._rates_here[:width, step]
        return relative, None if scale is None else 1 - relative * (1 - scale)

    @cached_property
    def _rates_here(self) -> Tensor:
        """(T, steps, 1, 1) relative rates, with the type and device of the models."""
        assert self.relative_rates is not None
        return self.relative_rates.to(self.start)[:, :, None, None]


def subtract_(models: Tensor, direction: Tensor, rate: Tensor | float) -> Tensor:
    """Subtracts rate times the direction (T, M, P) in place; the rate is a number or (T, 1, 1)."""
    if isinstance(rate, Tensor):
        return models.addcmul_(direction, rate, value=-1)
    return models.sub_(direction, alpha=rate)


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
        """(T, 1, P) mean of the gradients that `lift` returns, with weights (M,); None if no cheaper."""
        return None
