"""Optuna's NSGA-II, an elitist genetic algorithm, for one or two objectives; see `service.samplers.optuna_base`.

Generation g is the trials numbered g·population_size to (g + 1)·population_size - 1, whatever the order in which they
finish (Optuna would count what had finished when each trial was proposed, which rows do not hold). Generation 0 is
quasi-random. A later trial is bred from the best population_size among the finished trials of earlier generations:
binary tournament, uniform crossover, and each coordinate drawn afresh with probability 1/dimensions. Trials of
earlier generations that still run are not waited for: they are missing among the parents, and while fewer than half a
population has finished the trial is quasi-random. No child repeats a running trial.

What is guaranteed: a proposal is a function of (space, seed, number, population_size, finished trials of earlier
generations, and, for what must not be repeated, all others); so a rebuilt sampler goes on as the interrupted one would.
"""

from __future__ import annotations

from collections.abc import Sequence

import optuna

from search_spaces.parameters import Space
from service.samplers.optuna_base import Learner

__all__ = ["POPULATION"]

POPULATION = 8
"""Optuna's own 50 leave a budget of 64 trials at hardly more than one generation."""


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
        """From which a generation is bred; one generation after the other, so that no stack grows."""
        for later in range(len(self._parents), generation + 1):
            self._parents.append(self.select_parent(study, later))
        return self._parents[generation]
