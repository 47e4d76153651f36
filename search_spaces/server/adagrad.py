"""Server Adagrad: what may be tried."""

from __future__ import annotations

from search_spaces.parameters import Float, Space


def default() -> Space:
    """A log scale for epsilon, from 1e-5 to 0.1; beta1 stays 0, which is Adagrad."""
    return {"epsilon": Float(1e-5, 0.1, log=True)}
