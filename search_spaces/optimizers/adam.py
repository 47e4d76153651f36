"""Adam: default space in each role."""

from __future__ import annotations

from search_spaces.parameters import Float, Space


def default(role: str) -> Space:
    """beta1 from 0 to 0.99 with 1 - beta1 on a log scale, epsilon on a log scale; beta2 stays the role's default.

    Args:
        role: As in `trainers.trial.roles`; epsilon is smaller on clients.
    """
    return {
        "beta1": Float(0.0, 0.99, log=True, complement=True),
        "epsilon": Float(1e-8, 1e-3, log=True) if role == "client" else Float(1e-5, 0.1, log=True),
    }
