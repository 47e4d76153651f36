"""Which rounds of a curve get a row in MLflow: about 64 per metric, evenly spread on a logarithmic axis.

The whole curves stay in the store. The rounds depend on the budget alone, so a curve that is written in several parts
has the same rows as one that is written at once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from itertools import repeat

import numpy as np

from driftline.results.curves import Array
from trainers import COUNTERS

ROUNDS_SHOWN = 64
_NOT_SHOWN = frozenset({"round", "diverged", *COUNTERS})
_NOT_ALLOWED = re.compile(r"[^\w\-. :/]")


def shown_rounds(rounds: int) -> list[int]:
    """Rounds at which curves are shown: 0, then at most `ROUNDS_SHOWN` on a logarithmic grid up to the budget.

    Args:
        rounds: Budget of a trial in rounds, at least 1.

    Examples:
        >>> shown_rounds(5)
        [0, 1, 2, 3, 4, 5]
        >>> len(shown_rounds(10_000))
        65
    """
    if rounds <= ROUNDS_SHOWN:
        return list(range(rounds + 1))
    grid: list[int] = [0]
    for left in range(ROUNDS_SHOWN, 0, -1):  # whole numbers without duplicates: each step is at least 1
        last = max(grid[-1], 1) if grid[-1] else 0
        ratio = (rounds / last) ** (1 / left) if last else 1.0
        grid.append(max(grid[-1] + 1, round(last * ratio)) if last else 1)
    grid[-1] = rounds
    return grid


def rows(
    columns: Mapping[str, Array], rounds: int, after: int, until: int, *, finished: bool = True
) -> list[tuple[str, float, int]]:
    """The rows of a curve: (metric, value, round).

    If a metric was not evaluated in a shown round, its last evaluation before that gets a row, at its own round. A
    learning rate gets rows only where it changes.

    Args:
        columns: The curve, NaN where nothing was reported.
        rounds: Budget of a trial in rounds.
        after: Rows up to this round were written before; -1 if none were.
        until: Rounds that are done.
        finished: Whether there will be no more rounds: then the last evaluation gets a row too.
    """
    points: list[tuple[str, float, int]] = []
    grid = [shown for shown in shown_rounds(rounds) if shown <= until] + ([until] if finished else [])
    written = np.searchsorted(grid, after, side="right")  # grid points that were written before
    for name, values in columns.items():
        if name in _NOT_SHOWN:
            continue
        finite = np.flatnonzero(np.isfinite(values))
        at = columns["round"][finite]
        picked = np.searchsorted(at, grid, side="right") - 1
        indices = np.unique(picked[picked >= 0])
        shown = values[finite[indices]]
        new = indices > (picked[written - 1] if written else -1)
        if name.endswith("_lr"):
            new[1:] &= shown[1:] != shown[:-1]
        steps = at[indices[new]].astype(np.int64)
        points += zip(repeat(metric_name(name)), shown[new].tolist(), steps.tolist(), strict=False)
    return points


def totals(columns: Mapping[str, Array]) -> dict[str, float]:
    """The last value of each counter that was reported: counters grow evenly, so that nothing else is shown."""
    last = {}
    for name in sorted(columns.keys() & COUNTERS):
        values = columns[name][np.isfinite(columns[name])]
        if values.size:
            last[name] = float(values[-1])
    return last


@functools.lru_cache(4096)
def metric_name(name: str) -> str:
    """A metric's name as MLflow accepts it.

    Examples:
        >>> metric_name("recall@10")
        'recall_10'
    """
    return _NOT_ALLOWED.sub("_", name)
