"""MAML: default space. local_steps is the number of adaptation steps."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Space


def default() -> Space:
    """Both rates on a log scale (client_lr also 0) and 1 to 16 adaptation steps in powers of two."""
    return {
        "client_lr": rates.client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((1, 2, 4, 8, 16)),
    }
