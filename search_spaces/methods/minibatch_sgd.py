"""Mini-batch SGD: what may be tried. One gradient a client and round, hence only the server's rate."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Space


def default() -> Space:
    """server_lr on a log scale."""
    return {"server_lr": rates.server_lr()}
