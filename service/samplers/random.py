"""Random search: every trial's configuration is drawn independently, from a generator seeded by (seed, number)."""

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
        generator = np.random.default_rng([self._seed, number])
        return {name: parameter.sample(generator) for name, parameter in self._space.items()}
