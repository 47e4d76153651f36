"""The step that Adam and AdamW share."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Settings(Protocol):
    """What the step is set by; (T, 1, 1) each."""

    @property
    def client_beta1(self) -> Tensor:
        """Decay of the mean of the gradients."""
        ...

    @property
    def client_beta2(self) -> Tensor:
        """Decay of the mean of their squares."""
        ...

    @property
    def client_epsilon(self) -> Tensor:
        """Added to the root."""
        ...


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
