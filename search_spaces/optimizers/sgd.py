"""SGD: default space in each role, and for the server the grid of [A] in `search_spaces.rates`."""

from __future__ import annotations

from search_spaces.parameters import Choice, Float, Space


def default(role: str) -> Space:
    """Heavy-ball momentum from 0 to 0.99 with 1 - momentum on a log scale; plain SGD on clients.

    Args:
        role: As in `trainers.trial.roles`.
    """
    return {} if role == "client" else {"momentum": Float(0.0, 0.99, log=True, complement=True)}


def paper() -> Space:
    """[A] section 6: momentum 0 or 0.9."""
    return {"momentum": Choice((0.0, 0.9))}
