"""FedAvg: default space, and the papers' grids. `search_spaces.rates` names the papers [A] and [B]."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Space, fixed


def default() -> Space:
    """Both rates on a log scale (client_lr also 0) and 1 to 32 local steps in powers of two."""
    return {
        "client_lr": rates.client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
    }


def fixed_server_lr() -> Space:
    """[A] figure 12: client_lr in {0, 1e-3, ..., 10}, server_lr 0.01, 10 local steps: 6 configurations."""
    return {"client_lr": rates.client_lr_grid(), "server_lr": fixed(0.01), "local_steps": fixed(10)}


def adaptive_fixed_server_lr() -> Space:
    """[B] figure 6, Yogi on the server: client_lr in {0, 1e-3, ..., 100}, server_lr 0.01, 10 steps: 7 in all."""
    return {"client_lr": rates.client_lr_grid(highest=100.0), "server_lr": fixed(0.01), "local_steps": fixed(10)}


def tuned_server_lr() -> Space:
    """[B] sections 8.1, 8.4: client_lr in {0, 1e-3, ..., 100}, server_lr on 9 half decades, 10 steps: 63 in all."""
    return {
        "client_lr": rates.client_lr_grid(highest=100.0),
        "server_lr": rates.half_decades(),
        "local_steps": fixed(10),
    }


def jointly_tuned() -> Space:
    """[A] appendix E.3: both rates on 9 half decades, 50 local steps: 81 configurations."""
    return {"client_lr": rates.half_decades(), "server_lr": rates.half_decades(), "local_steps": fixed(50)}
