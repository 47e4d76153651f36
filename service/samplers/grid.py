"""Grid search: every combination of the parameters' grid points, once, in an order shuffled by the seed.

The order is shuffled so that a budget smaller than the grid gets a fair sample of it. After its end the grid starts
again in the same order; `Study.check` rejects a budget that is larger than the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.errors import InvalidSpec
from search_spaces.parameters import Space
from search_spaces.spaces import grid_size
from search_spaces.values import same
from service.samplers.sampler import Hyperparameters, LearnsNothing

__all__ = ["LARGEST"]

LARGEST = 1_000_000


class Sampler(LearnsNothing):
    """Proposes every combination once; learns nothing. See `service.samplers.sampler` for the other arguments.

    Args:
        without: Configurations to leave out, unless nothing else is on the grid.

    Raises:
        InvalidSpec: The grid has more than a million configurations.
    """

    def __init__(
        self, space: Space, objectives: Sequence[str], seed: int, without: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        del objectives
        self._points = {name: space[name].grid() for name in sorted(space)}
        self.size = grid_size(space)
        if self.size > LARGEST:
            raise InvalidSpec(
                "space", f"a grid must have at most {LARGEST} configurations, got {self.size}: give fewer points"
            )
        order = np.random.default_rng(seed).permutation(self.size)
        left = order[
            ~np.isin(
                order, [index for hyperparameters in without if (index := self.index(hyperparameters)) is not None]
            )
        ]
        self._order = left if len(left) else order

    def index(self, hyperparameters: Mapping[str, Any]) -> int | None:
        """Index of a configuration on the unshuffled grid; None if it is not on the grid."""
        position, stride = 0, 1
        for name, points in self._points.items():
            on = [index for index, point in enumerate(points) if same(point, hyperparameters[name])]
            if not on:
                return None
            position, stride = position + on[0] * stride, stride * len(points)
        return position

    def ask(self, number: int) -> Hyperparameters:
        """A configuration for trial `number`, independent of all results."""
        rest = int(self._order[number % len(self._order)])
        hyperparameters = {}
        for name, points in self._points.items():
            rest, index = divmod(rest, len(points))
            hyperparameters[name] = points[index]
        return hyperparameters
