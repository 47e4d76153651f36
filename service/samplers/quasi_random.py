"""Quasi-random search: points of a scrambled Sobol sequence, which fill the space more evenly than random ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from search_spaces.parameters import Space
from search_spaces.spaces import free
from service.samplers.sampler import Hyperparameters, LearnsNothing

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK = 64  # points that are computed at once


class Sampler(LearnsNothing):
    """Points of a Sobol sequence scrambled by the seed; learns nothing. See `service.samplers.sampler`.

    Args:
        dimensions: Names of hyperparameters in the order of the sequence's dimensions, those of `space` among them;
            those of `space` by default. Labels with the same dimensions and seed get the same values for the
            hyperparameters that they share.
    """

    def __init__(
        self, space: Space, objectives: Sequence[str], seed: int, dimensions: Sequence[str] | None = None
    ) -> None:
        del objectives
        self._space = {name: space[name] for name in sorted(space)}
        self._dimensions = tuple(free(space)) if dimensions is None else tuple(dimensions)
        self._seed = seed
        self._blocks: dict[int, NDArray[np.float64]] = {}

    def ask(self, number: int) -> Hyperparameters:
        """A configuration for trial `number`, independent of all results."""
        quantiles = dict(zip(self._dimensions, self._point(number), strict=True))
        return {name: parameter.from_unit(quantiles.get(name, 0.0)) for name, parameter in self._space.items()}

    def _point(self, number: int) -> list[float]:
        """Point `number` of the sequence, in [0, 1)^d."""
        if not self._dimensions:
            return []
        block, row = divmod(number, _BLOCK)
        if block not in self._blocks:
            from scipy.stats import qmc  # 0.3 s: only where it is needed

            sequence = qmc.Sobol(len(self._dimensions), scramble=True, rng=np.random.default_rng(self._seed))
            if block:  # fast_forward(0) fails
                sequence.fast_forward(block * _BLOCK)
            kept = list(self._blocks.items())[-1:]  # where points are replaced, reads alternate between two blocks
            self._blocks = {**dict(kept), block: sequence.random(_BLOCK)}
        return [float(u) for u in self._blocks[block][row]]
