"""Nesterov's momentum: default space."""

from __future__ import annotations

from search_spaces.parameters import Float, Space


def default(role: str) -> Space:
    """Momentum from 0 to 0.99 with 1 - momentum on a log scale.

    Args:
        role: As in `trainers.trial.roles`; the space is the same in each.
    """
    return {"momentum": Float(0.0, 0.99, log=True, complement=True)}
