"""The local steps of MaSS, in its two forms, as client optimizers (engine/local/client_optimizer.py).

All sequences are kept as sums of gradients since the client's start: the model w = start - client_lr W, the look-ahead
u = start - client_lr U (at which gradients are taken) and the auxiliary v = start - client_lr V.

    three sequences   W <- U + g;  V <- (1 - mixing) V + mixing U + (auxiliary_lr / client_lr) g;
                      U <- (mixing V + W) / (1 + mixing), so that W = (1 + mixing) U - mixing V
    two sequences     W' = U + g;  U <- W' + momentum (W' - W) - (compensation_lr / client_lr) g;  W <- W'

Both are written so that they hold for the sums with rate -1, and for the models themselves with rate client_lr. Where
clients have their own rates, client_lr is a common one, and a client's g is multiplied by its rate over client_lr.
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
    """Methods that both forms share."""

    rate_share: Tensor | None

    moves_models = True  # w, u and v instead of W, U and V
    decoupled = False

    def accumulator_(self, memory: dict[str, Tensor]) -> Tensor | None:
        """None, because no tensor of the memory only accumulates gradients."""
        return None

    def rows(self, rows: slice) -> Self:
        """This optimizer for some of the trials."""
        part: Self = rows_of(self, rows)
        return part

    def _own_(self, gradient: Tensor) -> Tensor:
        """The gradients (width, busy, P) times each client's share of client_lr, in place."""
        return gradient if self.rate_share is None else gradient.mul_(self.rate_share[:, : gradient.shape[1]])


@dataclass(frozen=True)
class ThreeSequences(_Sequences):
    """Model, look-ahead and auxiliary sequence; returns the sum V, which gives W together with U.

    Args:
        mixing: (T, 1 or M, 1), in (0, 1].
        auxiliary_ratio: (T, 1 or M, 1), auxiliary_lr over the client's own client_lr.
        auxiliary: (T, M or 1, P), V before the first step; None is 0.
        rate_share: (T, M, 1), each client's own client_lr over the common one; None is 1.
    """

    mixing: Tensor
    auxiliary_ratio: Tensor
    auxiliary: Tensor | None = None
    rate_share: Tensor | None = None

    returned = (AUXILIARY,)

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """The memory before the first step of a round."""
        auxiliary = torch.zeros_like(like)
        return {AUXILIARY: auxiliary if self.auxiliary is None else auxiliary.copy_(self.auxiliary)}

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
        mixing, ratio = self.mixing[:, : total.shape[1]], self.auxiliary_ratio[:, : total.shape[1]]
        gradient = self._own_(gradient)
        auxiliary = memory[AUXILIARY].lerp_(total, mixing)
        auxiliary.addcmul_(gradient * -rate, ratio)
        subtract_(total, gradient, rate).lerp_(auxiliary, mixing / (1 + mixing))


@dataclass(frozen=True)
class TwoSequences(_Sequences):
    """Model and look-ahead sequence, with momentum; returns the sum W.

    Args:
        momentum: (T, 1 or M, 1), in [0, 1).
        compensation_ratio: (T, 1 or M, 1), compensation_lr over the client's own client_lr.
        model: (T, M or 1, P), W before the first step; None is 0.
        rate_share: (T, M, 1), each client's own client_lr over the common one; None is 1.
    """

    momentum: Tensor
    compensation_ratio: Tensor
    model: Tensor | None = None
    rate_share: Tensor | None = None

    returned = (MODEL,)

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """The memory before the first step of a round."""
        model = torch.zeros_like(like)
        return {MODEL: model if self.model is None else model.copy_(self.model)}

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
        momentum, ratio = self.momentum[:, : total.shape[1]], self.compensation_ratio[:, : total.shape[1]]
        gradient = self._own_(gradient)
        model = subtract_(total, gradient, rate)
        further = gradient.mul_(rate * ratio).addcmul_(memory[MODEL], momentum, value=-1)
        further.addcmul_(model, momentum)
        memory[MODEL].copy_(model)
        total.add_(further)
