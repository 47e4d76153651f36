"""SCAFFOLD: default space, and the grids of [C] in `search_spaces.alignment`. One local step would be FedSGD."""

from __future__ import annotations

from search_spaces import alignment, rates
from search_spaces.parameters import Choice, Space


def default() -> Space:
    """Both rates on a log scale (client_lr also 0) and 2 to 32 local steps in powers of two."""
    return {
        "client_lr": rates.client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((2, 4, 8, 16, 32)),
    }


def emnist() -> Space:
    """[C] section 5.1: 32 configurations for each of the batch sizes 240 and 2400."""
    return alignment.averaged((1, 10, 20, 40))


def cifar10() -> Space:
    """[C] section 5.2: 16 configurations at batch size 125."""
    return alignment.averaged((10, 20))
