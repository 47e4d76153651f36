"""Server Adam: what may be tried."""

from __future__ import annotations

from search_spaces.parameters import Float, Space


def default() -> Space:
    """beta1 from 0 to 0.99 with 1 - beta1 on a log scale, epsilon on a log scale from 1e-5 to 0.1; beta2 stays 0.99."""
    return {
        "beta1": Float(0.0, 0.99, log=True, complement=True),
        "epsilon": Float(1e-5, 0.1, log=True),
    }
