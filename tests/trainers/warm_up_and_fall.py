"""A schedule of local steps, for tests: client_lr rises over the first steps and then falls, rounds or not."""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyperparameters import tunable

LOSS_DATA = "batches"


@dataclass(frozen=True)
class Hyper:
    """Settings of the rise and the fall."""

    warmup: Tensor = tunable(4, kind="int", low=0, unit="local steps", doc="of the rise to client_lr")
    length: Tensor = tunable(20, kind="int", low=1, unit="local steps", doc="of the fall from client_lr to 0")


def init(hyper: Hyper, client_lr: Tensor, server_lr: Tensor) -> dict[str, Tensor]:
    """The state before the first round."""
    return {"round": torch.zeros_like(client_lr), "client_lr": client_lr, "server_lr": server_lr}


def rates(state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(client_lr, server_lr) of the next round."""
    return state["client_lr"], state["server_lr"]


def relative_rates(hyper: Hyper, state: dict[str, Tensor], steps: Tensor) -> Tensor:
    """The rates of the next round's steps, divided by client_lr."""
    now = (state["round"] * steps)[:, None] + torch.arange(int(steps.max()))
    warmup, length = hyper.warmup.double()[:, None], hyper.length.double()[:, None]
    return torch.where(now < warmup, (now + 1) / warmup, 1 - (now - warmup) / length).clamp(0, 1)


def update(hyper: Hyper, state: dict[str, Tensor], monitored: Tensor) -> dict[str, Tensor]:
    """The state after a round."""
    return {**state, "round": state["round"] + 1}
