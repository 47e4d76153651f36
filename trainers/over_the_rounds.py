"""Schedules of a known length: a warm-up, then a decay to a floor, exact in every local step.

Steps are counted over all rounds: local steps for client_lr, rounds for server_lr. The schedules' modules have the
formulas and the shapes. Rates depend on the round and the settings alone, so that a restored trial continues exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyperparameters import tunable


@dataclass(frozen=True)
class Hyper:
    """Settings of a schedule over the rounds; members of a pack may differ in all but rates."""

    warmup: Tensor = tunable(
        0.0,
        low=0,
        high=1,
        high_open=True,
        unit="share of the rounds",
        limit="0 is none",
        doc="linear rise to the whole rate",
    )
    floor: Tensor = tunable(
        0.0, low=0, high=1, unit="share of the rate", limit="1 is warm-up only", doc="the rate after the last step"
    )
    rates: str | None = tunable(
        None,
        choices=("client_lr", "server_lr", "both"),
        traced=False,
        doc="which rates; absent: client_lr, or server_lr for methods without it",
    )
    rounds: Tensor = tunable(
        None, kind="int", low=1, unit="rounds", doc="of the whole schedule; absent: those of the trial"
    )


@dataclass(frozen=True)
class OverTheRounds:
    """The functions of a schedule's module.

    Args:
        shape: maps progress in [0, 1] to a factor that falls from 1 to 0.
    """

    shape: Callable[[Tensor], Tensor]

    def init(self, hyper: Hyper, client_lr: Tensor, server_lr: Tensor) -> dict[str, Tensor]:
        """The state before the first round."""
        first = torch.zeros_like(server_lr, dtype=torch.int64)
        return self._at(hyper, {"round": first, "client_lr": client_lr, "first_server_lr": server_lr})

    def rates(self, state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(client_lr, server_lr) of the next round, (T,) each."""
        return state["client_lr"], state["server_lr"]

    def relative_rates(self, hyper: Hyper, state: dict[str, Tensor], steps: Tensor) -> Tensor | None:
        """(T, largest number of steps) factors of the next round's local steps; None if client_lr stays constant."""
        if hyper.rates == "server_lr":
            return None
        step = torch.arange(int(steps.max()), dtype=torch.float64)
        return self._factor(hyper, state["round"][:, None], step, steps[:, None].to(torch.float64))

    def update(self, hyper: Hyper, state: dict[str, Tensor], monitored: Tensor) -> dict[str, Tensor]:
        """The state after a round; nothing is monitored."""
        return self._at(hyper, {**state, "round": state["round"] + 1})

    def _at(self, hyper: Hyper, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The state with server_lr of its round; client_lr stays, because `relative_rates` multiplies it."""
        first = state["first_server_lr"]
        if hyper.rates == "client_lr":
            return {**state, "server_lr": first}
        one = torch.ones(1, dtype=torch.float64)
        return {
            **state,
            "server_lr": first * self._factor(hyper, state["round"][:, None], 0 * one, one)[:, 0].to(first),
        }

    def _factor(self, hyper: Hyper, rounds: Tensor, step: Tensor, steps: Tensor) -> Tensor:
        """(T, K) factors of steps (K,) in rounds (T, 1); a round has `steps` (T, 1) steps."""
        whole, floor, warmup = (value.to(torch.float64)[:, None] for value in (hyper.rounds, hyper.floor, hyper.warmup))
        done, total, rise = rounds * steps + step, whole * steps, warmup * whole * steps
        rising = torch.where(rise > 0, ((done + 1) / rise).clamp(max=1), 1.0)
        return rising * (floor + (1 - floor) * self.shape(((done - rise) / (total - rise)).clamp(0, 1)))
