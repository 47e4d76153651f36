"""Local update with any gradient weights: what may be tried."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Float, Space

_STEPS = 10


def default() -> Space:
    """Both rates on a log scale, three shapes of weights over 10 local steps, prox from 1e-3 to 10 or 0.

    The shapes: all ones (FedAvg), the last five, the last one alone (FOMAML).
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
