"""FedExP: what may be tried."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Float, Space


def default() -> Space:
    """client_lr on a log scale, the server's step as the paper has it, 2 to 32 local steps, epsilon from 1e-4 to 1."""
    return {
        "client_lr": rates.moving_client_lr(),
        "delta_lr": Choice((1.0,)),
        "local_steps": Choice((2, 4, 8, 16, 32)),
        "epsilon": Float(1e-4, 1.0, log=True),
    }
