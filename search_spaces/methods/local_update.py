"""Local update with any gradient weights: default space."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Float, Space

_STEPS = 10


def default() -> Space:
    """Both rates on a log scale, three weight vectors over 10 local steps, and prox from 1e-3 to 10, or 0.

    The weights are 1 for all steps (FedAvg), for the last five, or for the last one (FOMAML).
    """
    half = _STEPS // 2
    return {
        "client_lr": rates.client_lr(),
        "server_lr": rates.server_lr(),
        "gradient_weights": Choice(
            ([1.0] * _STEPS, [0.0] * half + [1.0] * half, [0.0] * (_STEPS - 1) + [1.0]),
        ),
        "prox": Float(1e-3, 10.0, log=True, also=(0.0,)),
    }
