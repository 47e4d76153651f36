"""The running mean, or sum, of squared gradients before the first step: initial_accumulator, or epsilon^2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """The values of one member, with epsilon^2 as initial_accumulator if it is null.

    Args:
        values: values of one member.
    """
    if values["initial_accumulator"] is not None:
        return values
    return {**values, "initial_accumulator": values["epsilon"] ** 2}


def first_square(hyper: Any, like: Tensor) -> Tensor:
    """The square before the first step.

    Args:
        hyper: settings of the optimizer.
        like: (T, M, P).
    """
    return torch.empty_like(like).copy_(hyper.initial_accumulator)
