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
    return {"client_lr": client_lr, "server_lr": server_lr}


def rates(state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return state["client_lr"], state["server_lr"]


def update(hyper: Hyper, state: dict[str, Tensor], monitored: Tensor) -> dict[str, Tensor]:
    return state
