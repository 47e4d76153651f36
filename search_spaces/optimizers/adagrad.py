"""Adagrad: default space in each role."""

from __future__ import annotations

from search_spaces.parameters import Float, Space


def default(role: str) -> Space:
    """A log scale for epsilon; beta1 stays 0, which is plain Adagrad.

    Args:
        role: As in `trainers.trial.roles`; epsilon is smaller on clients.
    """
    return {"epsilon": Float(1e-10, 1e-3, log=True) if role == "client" else Float(1e-5, 0.1, log=True)}
