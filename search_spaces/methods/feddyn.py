"""FedDyn: default space, and the paper's server. prox is the paper's alpha."""

from __future__ import annotations

from search_spaces import rates
from search_spaces.parameters import Choice, Float, Space, fixed


def default() -> Space:
    """Both rates and prox on log scales, 1 to 32 local steps; client_lr 0 and prox 0 would be other methods."""
    return {
        "client_lr": rates.moving_client_lr(),
        "server_lr": rates.server_lr(),
        "local_steps": Choice((1, 2, 4, 8, 16, 32)),
        "prox": Float(1e-3, 10.0, log=True),
    }


def averaged() -> Space:
    """The paper's server, which averages the clients' models: delta_lr is 1."""
    space = {name: parameter for name, parameter in default().items() if name != "server_lr"}
    return {**space, "delta_lr": fixed(1.0)}
