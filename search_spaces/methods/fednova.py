"""FedNova: default space."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Space


def default() -> Space:
    """Both rates on a log scale and 1 to 8 local epochs; with local_steps it would be FedAvg."""
    return {"client_lr": rates.client_lr(), "server_lr": rates.server_lr(), "local_epochs": Choice((1, 2, 4, 8))}
