"""The step that Adam and AdamW share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyper import hyper


@dataclass(frozen=True)
class Settings:
    """What the step is set by; traced fields (T, 1, 1)."""

    client_beta1: Tensor = hyper(
        0.9, low=0, high=1, high_open=True, limit="0 is no momentum", doc="decay of the mean of the gradients"
    )
    client_beta2: Tensor = hyper(
        0.999, low=0, high=1, high_open=True, limit="0 is |g| alone", doc="decay of the mean of their squares"
    )
    client_epsilon: Tensor = hyper(1e-8, low=0, low_open=True, unit="gradient", doc="added to the root: adaptivity")


def init(hyper: Settings, like: Tensor) -> dict[str, Tensor]:
    """Both means before the first step, 0.

    Args:
        hyper: traced fields (T, 1, 1).
        like: (T, M, P).
    """
    return {"mean": torch.zeros_like(like), "square": torch.zeros_like(like)}


def direction_(hyper: Settings, memory: dict[str, Tensor], gradient: Tensor, step: int) -> Tensor:
    """The direction of one step; changes the memory in place, and the gradient.

    Args:
        hyper: traced fields (T, 1, 1).
        memory: from `init`.
        gradient: (T, M, P).
        step: from 0.
    """
    mean = memory["mean"].mul_(hyper.client_beta1).addcmul_(gradient, 1 - hyper.client_beta1)
    square = memory["square"].mul_(hyper.client_beta2).addcmul_(gradient.square_(), 1 - hyper.client_beta2)
    root = (square / (1 - hyper.client_beta2 ** (step + 1))).sqrt_()
    return (mean / (1 - hyper.client_beta1 ** (step + 1))).div_(root.add_(hyper.client_epsilon))
