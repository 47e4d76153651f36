"""Optuna's NSGA-II, an elitist genetic algorithm, for one or two objectives; see `service.samplers.optuna_base`.

Generation g has the trials g·population_size to (g + 1)·population_size - 1, in whatever order they finish. (Optuna
itself counts the trials that had finished when each trial was proposed, which the rows do not hold.) Generation 0 is
quasi-random. A later trial is bred from the best population_size finished trials of earlier generations, by binary
tournament, uniform crossover, and a fresh draw of each coordinate with probability 1/dimensions. It does not wait for
running trials of earlier generations: these are missing among the parents, and the trial is quasi-random if fewer than
half a population has finished. No child repeats a running trial.

Guarantee: a proposal is a function of (space, seed, number, population_size, finished trials of earlier generations)
and of all other trials, which it must not repeat. A rebuilt sampler therefore continues as the interrupted one would.
"""

from __future__ import annotations

from collections.abc import Sequence

import optuna

from search_spaces.parameters import Space
from service.samplers.optuna_base import Learner

__all__ = ["POPULATION"]

POPULATION = 8
"""With Optuna's default of 50, a budget of 64 trials would be hardly more than one generation."""


class Sampler(Learner):
    """Proposals by NSGA-II. See `service.samplers.base` for the other arguments.

    Args:
        population_size: Trials in a generation, and parents of the next; at least 4.
    """

    fixed = True
    tries = 20

    def __init__(self, space: Space, objectives: Sequence[str], seed: int, population_size: int | None = None) -> None:
        super().__init__(space, objectives, seed)
        self._population = POPULATION if population_size is None else population_size

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        return _Generations(self._population, number // self._population, seed)

    def _ready(self, number: int) -> bool:
        earlier = number // self._population * self._population
        return 2 * sum(other < earlier for other in self._finished) >= self._population


class _Generations(optuna.samplers.NSGAIISampler):
    """NSGA-II whose generations follow from the trials' numbers."""

    def __init__(self, population_size: int, generation: int, seed: int) -> None:
        super().__init__(population_size=population_size, seed=seed)
        self._size = population_size
        self._generation = generation
        self._parents: list[list[optuna.trial.FrozenTrial]] = [[]]

    def get_trial_generation(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> int:
        """Generation of the trial that is being proposed."""
        return self._generation

    def get_population(self, study: optuna.Study, generation: int) -> list[optuna.trial.FrozenTrial]:
        """The finished trials of a generation."""
        finished = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
        return [trial for trial in finished if trial.user_attrs["number"] // self._size == generation]

    def get_parent_population(self, study: optuna.Study, generation: int) -> list[optuna.trial.FrozenTrial]:
        """The parents of a generation; computed generation by generation, to avoid a deep recursion."""
        for later in range(len(self._parents), generation + 1):
            self._parents.append(self.select_parent(study, later))
        return self._parents[generation]
