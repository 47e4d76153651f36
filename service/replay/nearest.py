"""The recorded configuration nearest to a proposal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.results.curves import Array
from search_spaces.parameters import Choice, Parameter, Space
from search_spaces.values import is_real, same


class NearestRows:
    """Finds recorded configurations close to a proposal.

    Within a range, values are compared on the range's own scale, from 0 to 1 over the range; choices among more than
    two numbers by their rank, from 0 to 1. Two different other choices, two different extra points, and an extra point
    and a value of the range are 1 apart. The distance is Euclidean over the hyperparameters.

    Args:
        space: The search space.
        rows: The recorded configurations, all inside the space.
    """

    def __init__(self, space: Space, rows: Sequence[Mapping[str, Any]]) -> None:
        self._space = space
        self._places = {
            name: np.array([_place(parameter, row[name]) for row in rows]).reshape(-1, 2)
            for name, parameter in space.items()
        }
        self._count = len(rows)

    def nearest(self, proposal: Mapping[str, Any], untried: Sequence[int] | Array) -> int:
        """The index of the nearest row among those that are untried; of equals, the first of them.

        Args:
            proposal: A configuration inside the space.
            untried: Indices of rows, at least one.
        """
        candidates = np.asarray(untried, dtype=np.int64)
        squares = np.zeros(len(candidates))
        for name, parameter in self._space.items():
            kind, position = _place(parameter, proposal[name])
            rows = self._places[name][candidates]
            squares += np.where(rows[:, 0] == kind, (rows[:, 1] - position) ** 2, 1.0)
        return int(candidates[np.argmin(squares)])


def _place(parameter: Parameter, value: Any) -> tuple[float, float]:
    """(kind, place): values of the same kind are as far apart as their places, values of different kinds 1."""
    if isinstance(parameter, Choice):
        if len(parameter.options) > 2 and all(is_real(option) for option in parameter.options):
            ranks = sorted(parameter.options)
            return 0.0, ranks.index(value) / (len(ranks) - 1)
        return float(next(index for index, option in enumerate(parameter.options) if same(option, value))), 0.0
    if value in parameter.also:
        return 1.0 + parameter.also.index(value), 0.0
    return 0.0, parameter.place(value)
