"""RMSprop: default space in each role."""

from __future__ import annotations

from search_spaces.parameters import Float, Space


def default(role: str) -> Space:
    """beta2 from 0.9 to 0.999 with 1 - beta2 on a log scale, epsilon on a log scale.

    Args:
        role: As in `trainers.trial.roles`; epsilon is smaller on clients.
    """
    return {
        "beta2": Float(0.9, 0.999, log=True, complement=True),
        "epsilon": Float(1e-8, 1e-3, log=True) if role == "client" else Float(1e-5, 0.1, log=True),
    }
