"""Alignment-aware linear scaling: default space, and the paper's rule with one rate."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Float, Space, fixed


def default() -> Space:
    """Both rates on a log scale, and client_lr 0, which is linear scaling."""
    return {"client_lr": rates.client_lr(), "server_lr": rates.server_lr()}


def one_rate() -> Space:
    """The paper's rule: the server steps with the rate of the displacement."""
    return {"client_lr": Float(1e-3, 10.0, log=True), "delta_lr": fixed(1.0)}
