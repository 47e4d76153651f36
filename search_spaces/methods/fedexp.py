"""FedExP: default space, and the paper's server."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Float, Space, fixed


def default() -> Space:
    """client_lr and epsilon on log scales, a server step of 1/4 to 4 times the paper's, and 2 to 32 local steps."""
    return {
        "client_lr": rates.moving_client_lr(),
        "delta_lr": Float(0.25, 4.0, log=True),
        "local_steps": Choice((2, 4, 8, 16, 32)),
        "epsilon": Float(1e-4, 1.0, log=True),
    }


def averaged() -> Space:
    """The paper's server, whose step is just the extrapolation: delta_lr is 1."""
    return {**default(), "delta_lr": fixed(1.0)}
