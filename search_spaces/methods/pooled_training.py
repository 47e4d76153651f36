"""Pooled training: default space."""

from __future__ import annotations

from search_spaces import mixing
from search_spaces.parameters import Space


def default() -> Space:
    """client_lr and server_lr on a log scale, and 1 to 32 local steps in powers of two."""
    return mixing.default()


def tied() -> Space:
    """The authors' tied rates: client_lr on a log scale, delta_lr 1, 10 local steps (the paper prints no grid)."""
    return mixing.tied()
