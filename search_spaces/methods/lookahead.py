"""Lookahead: default space. The slow step size is delta_lr = server_lr / client_lr."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Float, Space


def default() -> Space:
    """client_lr and delta_lr (0.1 to 1) on log scales, and 2 to 32 local steps in powers of two (1 would be SGD)."""
    return {
        "client_lr": rates.moving_client_lr(),
        "delta_lr": Float(0.1, 1.0, log=True),
        "local_steps": Choice((2, 4, 8, 16, 32)),
    }
