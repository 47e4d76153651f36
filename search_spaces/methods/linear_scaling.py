"""Linear scaling: default space. The server's step is multiplied by the number of clients."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Space


def default() -> Space:
    """server_lr on a log scale."""
    return {"server_lr": rates.server_lr()}
