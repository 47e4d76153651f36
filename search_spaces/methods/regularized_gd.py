"""Gradient descent with misalignment: default space. Weight 0 would be FedSGD."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Float, Space


def default() -> Space:
    """server_lr and misalignment_weight on log scales, the latter over the range of GradAlign's displacement."""
    return {"server_lr": rates.server_lr(), "misalignment_weight": Float(1e-3, 10.0, log=True)}
