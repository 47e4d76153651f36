"""The local steps of MaSS, in its two forms, as client optimizers (engine/local/client_optimizer.py).

All sequences are kept as sums of gradients since the client's start: the model w = start - client_lr W, the look-ahead
u = start - client_lr U (at which gradients are taken) and the auxiliary v = start - client_lr V.

    three sequences   W <- U + g;  V <- (1 - mixing) V + mixing U + (auxiliary_lr / client_lr) g;
                      U <- (mixing V + W) / (1 + mixing), so that W = (1 + mixing) U - mixing V
    two sequences     W' = U + g;  U <- W' + momentum (W' - W) - (compensation_lr / client_lr) g;  W <- W'

Both are written so that they hold for the sums with rate -1, and for the models themselves with rate client_lr.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from trainers.engine.local.client_optimizer import rows_of
from trainers.engine.oracles.frame import subtract_

MODEL, AUXILIARY = "model", "auxiliary"


class _Sequences:
    """What both forms share."""

    moves_models = True  # w, u and v instead of W, U and V
    decoupled = False

    def accumulator_(self, memory: dict[str, Tensor]) -> Tensor | None:
        """No tensor only accumulates gradients."""
        return None

    def rows(self, rows: slice) -> Self:
        """This optimizer for some of the trials."""
        part: Self = rows_of(self, rows)
        return part


@dataclass(frozen=True)
class ThreeSequences(_Sequences):
    """Model, look-ahead and auxiliary sequence; returns the sum V, which gives W together with U.

    Args:
        mixing: (T, 1, 1), in (0, 1].
        auxiliary_ratio: (T, 1, 1), auxiliary_lr / client_lr.
        auxiliary: (T, M or 1, P), V before the first step; None is 0.
    """

    mixing: Tensor
    auxiliary_ratio: Tensor
    auxiliary: Tensor | None = None

    returned = (AUXILIARY,)

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """The memory before the first step of a round."""
        held = torch.zeros_like(like)
        return {AUXILIARY: held if self.auxiliary is None else held.copy_(self.auxiliary)}

    def begin_(self, memory: dict[str, Tensor], start: Tensor, rate: float) -> None:
        """Turns the sum of `init` into a model."""
        if self.auxiliary is None:
            memory[AUXILIARY].copy_(start)
        else:
            memory[AUXILIARY].mul_(-rate).add_(start)

    def step_(
        self,
        total: Tensor,
        memory: dict[str, Tensor],
        gradient: Tensor,
        step: int | Tensor,
        rate: Tensor | float = -1.0,
    ) -> None:
        """Advances the totals by one step."""
        auxiliary = memory[AUXILIARY].lerp_(total, self.mixing)
        auxiliary.addcmul_(gradient * -rate, self.auxiliary_ratio)
        subtract_(total, gradient, rate).lerp_(auxiliary, self.mixing / (1 + self.mixing))


@dataclass(frozen=True)
class TwoSequences(_Sequences):
    """Model and look-ahead sequence, with momentum; returns the sum W.

    Args:
        momentum: (T, 1, 1), in [0, 1).
        compensation_ratio: (T, 1, 1), compensation_lr / client_lr.
        model: (T, M or 1, P), W before the first step; None is 0.
    """

    momentum: Tensor
    compensation_ratio: Tensor
    model: Tensor | None = None

    returned = (MODEL,)

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """The memory before the first step of a round."""
        held = torch.zeros_like(like)
        return {MODEL: held if self.model is None else held.copy_(self.model)}

    def begin_(self, memory: dict[str, Tensor], start: Tensor, rate: float) -> None:
        """Turns the sum of `init` into a model."""
        memory[MODEL].mul_(-rate).add_(start)

    def step_(
        self,
        total: Tensor,
        memory: dict[str, Tensor],
        gradient: Tensor,
        step: int | Tensor,
        rate: Tensor | float = -1.0,
    ) -> None:
        """Advances the totals by one step."""
        model = subtract_(total, gradient, rate)
        further = gradient.mul_(rate * self.compensation_ratio).addcmul_(memory[MODEL], self.momentum, value=-1)
        further.addcmul_(model, self.momentum)
        memory[MODEL].copy_(model)
        total.add_(further)
