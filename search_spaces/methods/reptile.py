"""Reptile: default space. A round is FedAvg's with independent rates, hence the space is the same."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Space


def default() -> Space:
    """Both rates on a log scale (client_lr also 0) and 1 to 32 local steps in powers of two."""
    return {
        "client_lr": rates.client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
    }
