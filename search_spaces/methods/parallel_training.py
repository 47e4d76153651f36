"""Parallel training: default space. The server's branch has the same rate and steps as the clients'."""

from __future__ import annotations

from search_spaces import mixing
from search_spaces.parameters import Space


def default() -> Space:
    """client_lr and server_lr on a log scale, and 1 to 32 local steps in powers of two."""
    return mixing.default()


def tied() -> Space:
    """The authors' tied rates: client_lr on a log scale, delta_lr 1, 10 local steps (the paper prints no grid)."""
    return mixing.tied()


def smile() -> Space:
    """The paper's configuration for smile classification, with cohorts of 100 clients and batches of 5."""
    return mixing.smile("parallel_training")


def language() -> Space:
    """The paper's configuration for next-character prediction, with cohorts of 100 clients and batches of 8."""
    return mixing.language("parallel_training")


def movies() -> Space:
    """The paper's configuration for next-movie recommendation, with cohorts of 100 clients and batches of 16."""
    return mixing.movies()


def wide() -> Space:
    """Separate rates, 1 to 16 steps, batches of the server from 5 to 1000, and both ways to merge."""
    return mixing.wide(branch=True)
