"""Quasi-random search: points of a scrambled Sobol sequence, which fill the space more evenly than random ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search_spaces.parameters import Space
from search_spaces.spaces import free
from service.samplers.sampler import Hyperparameters, LearnsNothing


class Sampler(LearnsNothing):
    """Points of a Sobol sequence scrambled by the seed; learns nothing. See `service.samplers.sampler`."""

    def __init__(self, space: Space, objectives: Sequence[str], seed: int) -> None:
        del objectives
        self._space = {name: space[name] for name in sorted(space)}
        self._free = free(space)
        self._seed = seed

    def ask(self, number: int) -> Hyperparameters:
        """A configuration for trial `number`, independent of all results."""
        quantiles = dict(zip(self._free, self._point(number), strict=True))
        return {name: parameter.from_unit(quantiles.get(name, 0.0)) for name, parameter in self._space.items()}

    def _point(self, number: int) -> list[float]:
        """Point `number` of the sequence, in [0, 1)^d."""
        if not self._free:
            return []
        from scipy.stats import qmc  # 0.3 s: only where it is needed

        sequence = qmc.Sobol(len(self._free), scramble=True, rng=np.random.default_rng(self._seed))
        if number:
            sequence.fast_forward(number)
        return [float(u) for u in sequence.random(1)[0]]
