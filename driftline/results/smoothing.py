"""The smoothed quality of a trial."""

from __future__ import annotations

import numpy as np

from driftline.results.curves import Array

WINDOW = 0.1
"""The window at round t spans the last max(1, t / 10) rounds."""


def smooth(rounds: Array, values: Array) -> Array:
    """The mean over the evaluations of the last max(1, t / 10) rounds, for each evaluation.

    s_j = mean of v_i over all i with r_j - max(1, r_j / 10) < r_i <= r_j. The window depends on the round alone: a
    longer budget changes no smoothed value. Where evaluations are sparse, a window holds just one of them.

    Args:
        rounds: Rounds of the evaluations, (n,), increasing.
        values: Their values, (..., n), finite.

    Examples:
        >>> smooth(np.array([0.0, 1.0, 19.0, 20.0]), np.array([8.0, 4.0, 2.0, 1.0])).tolist()
        [8.0, 4.0, 2.0, 1.5]
    """
    if not len(rounds):
        return np.zeros_like(values)
    first = np.searchsorted(rounds, rounds - np.maximum(1.0, WINDOW * rounds), side="right")
    after = np.arange(1, len(rounds) + 1)
    padded = np.concatenate([values, np.zeros((*values.shape[:-1], 1))], axis=-1)
    sums = np.add.reduceat(padded, np.stack([first, after], axis=1).ravel(), axis=-1)[..., ::2]
    return np.asarray(sums / (after - first))
