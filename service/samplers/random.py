"""Random search: each value is drawn independently, from a generator seeded by (seed, number, hyperparameter).

Two labels of a study have the same seed, so a hyperparameter that both have gets the same value in both if its range is
the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search_spaces.parameters import Space
from service.samplers.sampler import Hyperparameters, LearnsNothing


class Sampler(LearnsNothing):
    """Independent draws; learns nothing. See `service.samplers.sampler` for the arguments."""

    def __init__(self, space: Space, objectives: Sequence[str], seed: int) -> None:
        del objectives
        self._space = {name: space[name] for name in sorted(space)}
        self._seed = seed

    def ask(self, number: int) -> Hyperparameters:
        """A configuration for trial `number`, independent of all results."""
        return {
            name: parameter.sample(np.random.default_rng([self._seed, number, *name.encode()]))
            for name, parameter in self._space.items()
        }
