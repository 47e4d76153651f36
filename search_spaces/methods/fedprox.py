"""FedProx: default space, and the grid of [A] in `search_spaces.rates`."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Float, Space, fixed


def default() -> Space:
    """FedAvg's space, and prox on a log scale from 1e-3 to 10 (0 would be FedAvg)."""
    return {
        "client_lr": rates.client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
        "prox": Float(1e-3, 10.0, log=True),
    }


def jointly_tuned() -> Space:
    """[A] section 6 and appendix E.3: prox in {0, 0.5, 1, 5}, both rates on 9 half decades, 50 steps.

    324 configurations. The values of prox are those of the paper's figure 3; its text does not print them.
    """
    return {
        "client_lr": rates.half_decades(),
        "server_lr": rates.half_decades(),
        "local_steps": fixed(50),
        "prox": Choice((0.0, 0.5, 1.0, 5.0)),
    }
