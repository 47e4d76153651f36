"""Warm-up, then a straight line down to a floor, over all rounds; exact in every local step.

Steps are local steps for client_lr and rounds for server_lr. With n steps before this one, N in all and W = warmup N:

    factor = min(1, (n + 1) / W) (floor + (1 - floor) (1 - p)),   p = (n - W) / (N - W), from 0 to 1
    the rate is client_lr times the factor; after `rounds` rounds the factor stays at the floor

The pseudo-gradient weights a direction by its factor, so that a client's change is client_lr times its
pseudo-gradient in every round. With a constant server_lr the model moves by delta_lr = server_lr / client_lr times the
mean change, as with DiLoCo's constant outer rate; rates `both` lets server_lr fall as well. warmup is a share, and fits
any number of rounds and of local steps. With local_epochs a round has as many steps as its client with the most
examples; other clients take only the first ones. The client_lr of a report line is that of the round's first step.

Source: "Optimal Linear Decay Learning Rate Schedules and Further Refinements" (Defazio et al. 2023).
"""

from __future__ import annotations

from typing import Any

from trainers.over_the_rounds import Hyper, OverTheRounds

__all__ = ["Hyper"]
LOSS_DATA = "batches"
FOLLOWS = {"rates": None, "rounds": None}
SPACE: dict[str, Any] = {
    "warmup": {"choice": [0.0, 0.01, 0.05, 0.1]},
    "floor": {"choice": [0.0, 0.05, 0.1]},
}

_SCHEDULE = OverTheRounds(lambda progress: 1 - progress)
init = _SCHEDULE.init
rates = _SCHEDULE.rates
relative_rates = _SCHEDULE.relative_rates
update = _SCHEDULE.update
