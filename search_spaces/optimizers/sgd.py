"""SGD: what may be tried in each role, and the paper's grid for the server."""

from __future__ import annotations

from search_spaces.parameters import Choice, Float, Space


def default(role: str) -> Space:
    """Momentum from 0 to 0.99 with 1 - momentum on a log scale, heavy ball; on clients it is plain.

    Args:
        role: as in `trainers.trial.roles`.
    """
    return {} if role == "client" else {"momentum": Float(0.0, 0.99, log=True, complement=True)}


def paper() -> Space:
    """[A] section 6: momentum 0 or 0.9."""
    return {"momentum": Choice((0.0, 0.9))}
