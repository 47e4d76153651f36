"""Shares of the examples that clients get, and whole numbers of examples in these proportions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Shares = NDArray[np.float64]


def power_law(clients: int, exponent: float, seed: int) -> Shares:
    """(clients,) shares: that of the k-th largest client is proportional to k ** -exponent; ranks are random.

    Args:
        clients: at least 1.
        exponent: above 0.
        seed: at least 0.
    """
    weights = np.arange(1, clients + 1, dtype=np.float64) ** -exponent
    return np.random.default_rng([seed, 10]).permutation(weights / weights.sum())


def dirichlet(clients: int, concentration: float, seed: int) -> Shares:
    """(clients,) shares, drawn from a symmetric Dirichlet distribution.

    Args:
        clients: at least 1.
        concentration: above 0.
        seed: at least 0.
    """
    return drawn_mixture(np.random.default_rng([seed, 11]), concentration, clients)


def drawn_mixture(generator: np.random.Generator, concentration: float, parts: int) -> Shares:
    """(parts,) one draw from a symmetric Dirichlet distribution; at tiny concentrations its limit, one part alone."""
    mixture = generator.dirichlet(np.full(parts, concentration))
    if not np.isfinite(mixture).all():
        mixture = np.eye(1, parts, int(generator.integers(parts)))[0]
    return mixture


def apportioned(total: int, shares: Shares) -> NDArray[np.int64]:
    """(clients,) whole numbers that add up to `total`: one for each client, and the rest in proportion to the shares.

    Args:
        total: at least the number of clients.
        shares: (clients,) at least 0.

    Examples:
        >>> apportioned(13, np.array([0.7, 0.2, 0.1]))
        array([8, 3, 2])
    """
    weights = shares if shares.sum() > 0 else np.ones(len(shares))
    exact = weights / weights.sum() * (total - len(shares))
    sizes = np.floor(exact).astype(np.int64)
    sizes[np.argsort(sizes - exact, kind="stable")[: total - len(shares) - int(sizes.sum())]] += 1
    return np.asarray(sizes + 1)


def cut(rows: NDArray[Any], clients: int, shares: Shares | None) -> list[NDArray[Any]]:
    """Cuts the rows among clients in these proportions; None cuts equally, up to one row."""
    if shares is None:
        return np.array_split(rows, clients)
    return np.split(rows, np.cumsum(apportioned(len(rows), shares))[:-1])
