"""Constant rates: client_lr and server_lr keep their given values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

LOSS_DATA = "batches"
SPACE: dict[str, Any] = {}
RATES = "kept"


@dataclass(frozen=True)
class Hyper:
    """No settings."""


def init(hyper: Hyper, client_lr: Tensor, server_lr: Tensor) -> dict[str, Tensor]:
    """The state before the first round.

    Args:
        hyper: no settings.
        client_lr: (T,) initial rates.
        server_lr: (T,) initial rates.
    """
    return {"client_lr": client_lr, "server_lr": server_lr}


def rates(state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(client_lr, server_lr) of the next round, (T,) each."""
    return state["client_lr"], state["server_lr"]


def update(hyper: Hyper, state: dict[str, Tensor], monitored: Tensor) -> dict[str, Tensor]:
    """The state after a round: unchanged.

    Args:
        hyper: no settings.
        state: from `init` or `update`.
        monitored: (T,) the round's value, not used.
    """
    return state
