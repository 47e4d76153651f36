"""FOMAML: default space. local_steps K means K - 1 adaptation steps and the gradient after them."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Space


def default() -> Space:
    """Both rates on a log scale (client_lr also 0) and 2 to 32 local steps in powers of two (1 would be FedSGD)."""
    return {
        "client_lr": rates.client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((2, 4, 8, 16, 32)),
    }
