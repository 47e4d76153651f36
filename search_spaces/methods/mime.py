"""Mime: default space."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Float, Space


def default() -> Space:
    """Both rates on a log scale, 1 to 32 local steps, momentum from 0 to 0.99 with 1 - momentum on a log scale."""
    return {
        "client_lr": rates.client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
        "momentum": Float(0.0, 0.99, log=True, complement=True),
    }
