"""Yogi: default space in each role, and for the server the configurations of [B] section 8.4 with their best rates.

[B] Charles and Konecny, "On the Outsized Importance of Learning Rates in Local Update Methods". The experiment is
FedAvg with 10 local steps, 50 clients a round and batches of 16 on two tasks of Stack Overflow. Its rates are those of
`search_spaces.methods.fedavg.adaptive_fixed_server_lr` (figure 6) and `tuned_server_lr` (figure 7).
"""

from __future__ import annotations

from search_spaces.parameters import Float, Space, fixed
from search_spaces.rates import half_decades

_LOCAL_STEPS = 10


def default(role: str) -> Space:
    """beta1 from 0 to 0.99 with 1 - beta1 on a log scale, epsilon on a log scale; beta2 stays the role's default.

    Args:
        role: As in `trainers.trial.roles`; epsilon is smaller on clients.
    """
    return {
        "beta1": Float(0.0, 0.99, log=True, complement=True),
        "epsilon": Float(1e-8, 1e-3, log=True) if role == "client" else Float(1e-5, 0.1, log=True),
    }


def paper() -> Space:
    """[B] section 8.4: beta1 0.9, beta2 0.99, epsilon 1e-5, initial_accumulator 0, with bias correction."""
    return {
        "beta1": fixed(0.9),
        "beta2": fixed(0.99),
        "epsilon": fixed(1e-5),
        "initial_accumulator": fixed(0.0),
        "bias_correction": fixed(True),
    }


def word_prediction() -> list[dict[str, float]]:
    """[B] table 6: for each client_lr the best server_lr for predicting the next word; usable as a study's `start`.

    The paper does not print the rates for client_lr 1 and above.

    Examples:
        >>> word_prediction()[0]
        {'client_lr': 0.1, 'server_lr': 0.0316227766, 'local_steps': 10}
    """
    return _settings({1e-1: -1.5, 1e-2: -1.5, 1e-3: -2.0, 0.0: -2.0})


def tag_prediction() -> list[dict[str, float]]:
    """[B] table 7: for each client_lr the best server_lr for predicting tags; usable as a study's `start`.

    The paper does not print the rate for client_lr 1e-3.

    Examples:
        >>> [configuration["client_lr"] for configuration in tag_prediction()]
        [100.0, 10.0, 1.0, 0.1, 0.01, 0.0]
    """
    return _settings(dict.fromkeys((100.0, 10.0, 1.0, 1e-1, 1e-2, 0.0), -0.5))


def _settings(exponents: dict[float, float]) -> list[dict[str, float]]:
    """Configurations from a mapping of client_lr to log10 of server_lr, rounded to the grid of half decades."""
    grid = half_decades().options
    rates = {client_lr: grid[round(2 * exponent) + 6] for client_lr, exponent in exponents.items()}
    return [{"client_lr": c, "server_lr": s, "local_steps": _LOCAL_STEPS} for c, s in rates.items()]
