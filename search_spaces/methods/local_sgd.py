"""Local SGD: default space, and the grid of [B] in `search_spaces.rates`. server_lr follows client_lr."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Space, fixed


def default() -> Space:
    """client_lr on a log scale and 1 to 32 local steps in powers of two."""
    return {"client_lr": rates.moving_client_lr(), "local_steps": Choice((1, 2, 4, 8, 16, 32))}


def tied() -> Space:
    """[B] section 8.2 (figure 4): client_lr in {1e-3, ..., 100}, without 0, which would not train; 10 local steps."""
    grid = rates.client_lr_grid(highest=100.0).options
    return {"client_lr": Choice(tuple(rate for rate in grid if rate > 0)), "local_steps": fixed(10)}
