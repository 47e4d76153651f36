"""Mini-batch SGD: default space. Each client gives one gradient a round, hence only the server has a rate."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Space


def default() -> Space:
    """server_lr on a log scale."""
    return {"server_lr": rates.server_lr()}
