"""MetaMinibatchProx: default space."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Float, Space


def default() -> Space:
    """Both rates on a log scale, 2 to 32 local steps in powers of two, prox on a log scale from 1e-3 to 10."""
    return {
        "client_lr": rates.moving_client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((2, 4, 8, 16, 32)),
        "prox": Float(1e-3, 10.0, log=True),
    }
