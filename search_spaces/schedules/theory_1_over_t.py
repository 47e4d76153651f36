"""The theory's rates, which fall like 1/round: default space for tasks whose two constants are not known."""

from __future__ import annotations

from search_spaces.parameters import Float, Space


def default() -> Space:
    """strong_convexity from 0.1 to 1 and smoothness from 1 to 10 on log scales; local_steps belongs to the method.

    For quadratics, give the task's own constants instead.
    """
    return {
        "strong_convexity": Float(0.1, 1.0, log=True),
        "smoothness": Float(1.0, 10.0, log=True),
    }
