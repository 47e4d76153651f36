"""Ranges and grids of learning rates that several methods share.

[A] Charles and Konecny, "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning".
[B] Charles and Konecny, "On the Outsized Importance of Learning Rates in Local Update Methods".
"""

from __future__ import annotations

from search_spaces.parameters import Choice, Float


def client_lr() -> Float:
    """Default range of client_lr, as in [A] appendix F: [1e-3, 10] on a log scale, and 0 (large-batch SGD)."""
    return Float(1e-3, 10.0, log=True, also=(0.0,))


def moving_client_lr() -> Float:
    """Range of client_lr for methods whose clients must move: [1e-3, 10] on a log scale, without 0."""
    return Float(1e-3, 10.0, log=True)


def server_lr() -> Float:
    """Default range of server_lr, as in both papers: [1e-3, 10] on a log scale, 9 points on a grid."""
    return Float(1e-3, 10.0, log=True, points=9)


def client_lr_grid(highest: float = 10.0) -> Choice:
    """Whole decades and 0: the papers' client_lr where server_lr is fixed, or tuned for each client_lr.

    Args:
        highest: 10 gives the 6 values of [A] appendix F, 100 the 7 values of [B] section 8.1.

    Examples:
        >>> client_lr_grid().options
        (0.0, 0.001, 0.01, 0.1, 1.0, 10.0)
    """
    decades = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
    return Choice((0.0, *(rate for rate in decades if rate <= highest)))


def half_decades() -> Choice:
    """The 9 values 10^-3, 10^-2.5, ..., 10 of server_lr in [B] section 8.1, and of both rates in [A] appendix E.3.

    Examples:
        >>> half_decades().options[:3]
        (0.001, 0.0031622776601683794, 0.01)
    """
    return Choice(
        tuple(10 ** (exponent / 2) if exponent % 2 else float(f"1e{exponent // 2}") for exponent in range(-6, 3))
    )
