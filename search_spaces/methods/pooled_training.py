"""Pooled training: what may be tried."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Space, fixed


def default() -> Space:
    """client_lr and server_lr on a log scale, and 1 to 32 local steps in powers of two."""
    return {
        "client_lr": rates.moving_client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
    }


def tied() -> Space:
    """The paper's experiments: delta_lr 1, 10 local steps, client_lr on a log scale (the paper prints no grid)."""
    return {"client_lr": rates.moving_client_lr(), "delta_lr": fixed(1.0), "local_steps": fixed(10)}
