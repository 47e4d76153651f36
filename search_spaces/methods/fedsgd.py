"""FedSGD: default space. All local gradients are taken at the broadcast model, so there is no client_lr."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Space


def default() -> Space:
    """server_lr on a log scale, and 1 to 32 mini-batches a round in powers of two."""
    return {"server_lr": rates.server_lr(), "local_steps": Choice((1, 2, 4, 8, 16, 32))}
