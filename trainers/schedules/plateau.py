r"""Automatic decay of both rates when the loss no longer falls (LocalUpdateDecay).

Source: "On the Outsized Importance of Learning Rates in Local Update Methods" (Charles, Konecny 2020), section 9.

Once a round, after the server step, with l_t the mean loss of the broadcast model on the round's clients before any
local step, and smoothed_t the mean of the last `window` values (infinite while there are fewer):

    improved   smoothed_t < best - min_delta
    decay      client_lr <- max(client_decay * client_lr, min_client_lr)
               server_lr <- max(server_decay * server_lr, min_server_lr)       used from the next round on

    "paper"      during the cooldown: count it down, wait <- 0.  Else improved: wait <- 0.  Else wait += 1, and at
                 wait >= patience decay, cooldown starts again, wait <- 0.  best <- min(best, smoothed_t) every round.
    "reference"  the authors' public code: best changes only when improved, and patience already counts in the round
                 in which the cooldown reaches 0 (a period of cooldown + patience - 1 rounds on a plateau).

Training starts with a cooldown. A decay does not reset best. Rates never rise: a rate that is 0 or already below its
floor stays. window = patience = 1 with cooldown = 0 is the base method; client_decay = 1 decays the server only,
server_decay = 1 the client only. An unfinished window counts as no improvement, so a patience shorter than the window
may decay before the first full window. With window = patience = cooldown this cannot happen; that setting is
recommended, and the default if only the window is given.

With monitor "accuracy" the negative accuracy is treated as the loss. Both are on all data of the round's clients,
unless the trial says `loss_data: batches`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.hyperparameters import tunable

LOSS_DATA = "full"
SPACE = {
    "window": {"int": [5, 100], "log": True},
    "client_decay": {"choice": [0.1, 0.5, 1.0]},
    "server_decay": {"choice": [0.5, 0.9, 1.0]},
}


@dataclass(frozen=True)
class Hyper:
    """Settings of the automatic decay; members of a pack may differ in all but decay_mode and monitor."""

    window: Tensor = tunable(
        100, kind="int", low=1, high=1_000_000, unit="rounds", limit="1 is no averaging", doc="rounds averaged"
    )
    patience: Tensor = tunable(
        None, kind="int", low=1, unit="rounds", doc="rounds without improvement before a decay; absent: as window"
    )
    cooldown: Tensor = tunable(
        None,
        kind="int",
        low=0,
        unit="rounds",
        limit="0 is no cooldown",
        doc="rounds without decay at the start and after each decay; absent: as window",
    )
    min_delta: Tensor = tunable(1e-4, low=0, low_open=True, unit="loss", doc="smallest improvement that counts")
    client_decay: Tensor = tunable(
        0.1, low=0, high=1, low_open=True, limit="1 is server only", doc="client_lr's factor"
    )
    server_decay: Tensor = tunable(
        0.9, low=0, high=1, low_open=True, limit="1 is client only", doc="server_lr's factor"
    )
    min_client_lr: Tensor = tunable(0.0, low=0, limit="0 is no floor", doc="floor of client_lr")
    min_server_lr: Tensor = tunable(0.0, low=0, limit="0 is no floor", doc="floor of server_lr")
    decay_mode: str = tunable("paper", choices=("paper", "reference"), traced=False, doc="which reading of the rule")
    monitor: str = tunable("loss", choices=("loss", "accuracy"), traced=False, doc="a loss falls, an accuracy rises")


def complete(values: dict[str, Any]) -> dict[str, Any]:
    window = values["window"]
    follow = {name: window for name in ("patience", "cooldown") if values[name] is None}
    return {**values, **follow}


def init(hyper: Hyper, client_lr: Tensor, server_lr: Tensor) -> dict[str, Tensor]:
    """The state before the first round.

    Args:
        hyper: (T,) tensors, except decay_mode and monitor.
        client_lr: (T,) initial rates.
        server_lr: (T,) initial rates.

    Returns:
        losses: (T, largest window) float64, a ring buffer; a member uses its first `window` columns.
        seen: (T,) rounds so far.
        best: (T,) float64, smallest smoothed value; initially infinite.
        wait, cooldown_left, decays: (T,) integers.
        client_lr, server_lr: (T,) rates of the next round.
    """
    window = hyper.window.to(torch.int64)
    cooldown = window if hyper.cooldown is None else hyper.cooldown.to(torch.int64)
    count = torch.zeros_like(window)
    widest = max(1, int(window.max()))
    return {
        "losses": torch.zeros(len(window), widest, dtype=torch.float64, device=window.device),
        "seen": count,
        "best": torch.full(window.shape, math.inf, dtype=torch.float64, device=window.device),
        "wait": count.clone(),
        "cooldown_left": cooldown.clone(),
        "decays": count.clone(),
        "client_lr": client_lr.clone(),
        "server_lr": server_lr.clone(),
    }


def rates(state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return state["client_lr"], state["server_lr"]


def update(hyper: Hyper, state: dict[str, Tensor], monitored: Tensor) -> dict[str, Tensor]:
    window = hyper.window.to(torch.int64)
    patience = window if hyper.patience is None else hyper.patience.to(torch.int64)
    cooldown = window if hyper.cooldown is None else hyper.cooldown.to(torch.int64)
    losses, smoothed = _smooth(state, window, -monitored if hyper.monitor == "accuracy" else monitored)

    best, cooldown_left, wait = state["best"], state["cooldown_left"], state["wait"]
    improved = smoothed < best - hyper.min_delta.to(torch.float64)
    cooling = cooldown_left > 0
    cooldown_left = cooldown_left - cooling.to(torch.int64)
    if hyper.decay_mode == "paper":
        counts = ~cooling & ~improved
        best = torch.minimum(best, smoothed)
        may_decay = torch.ones_like(counts)
    else:
        counts = ~improved & (cooldown_left <= 0)
        best = torch.where(improved, smoothed, best)
        may_decay = (state["client_lr"] > hyper.min_client_lr) | (state["server_lr"] > hyper.min_server_lr)
    wait = torch.where(cooling | improved, 0, wait) + counts.to(torch.int64)
    decay = counts & (wait >= patience) & may_decay
    return {
        "losses": losses,
        "seen": state["seen"] + 1,
        "best": best,
        "wait": torch.where(decay, 0, wait),
        "cooldown_left": torch.where(decay, cooldown, cooldown_left),
        "decays": state["decays"] + decay.to(torch.int64),
        "client_lr": _decayed(decay, state["client_lr"], hyper.client_decay, hyper.min_client_lr),
        "server_lr": _decayed(decay, state["server_lr"], hyper.server_decay, hyper.min_server_lr),
    }


def _smooth(state: dict[str, Tensor], window: Tensor, loss: Tensor) -> tuple[Tensor, Tensor]:
    """(ring buffer with the new loss, mean of each member's last `window` losses or infinity)."""
    loss = loss.to(torch.float64)
    loss = torch.where(torch.isnan(loss), math.inf, loss)
    index = (state["seen"] % window)[:, None]
    losses = state["losses"].scatter(1, index, loss[:, None])
    # A running sum, read at the member's own window, so that longer windows of other members do not change it.
    total = losses.cumsum(1).gather(1, (window - 1)[:, None])[:, 0]
    return losses, torch.where(state["seen"] + 1 >= window, total / window, math.inf)


def _decayed(decay: Tensor, lr: Tensor, factor: Tensor, floor: Tensor) -> Tensor:
    lower = torch.maximum(factor.to(lr.dtype) * lr, floor.to(lr.dtype))
    return torch.where(decay, torch.minimum(lr, lower), lr)
