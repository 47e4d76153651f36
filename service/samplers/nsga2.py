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
from typing import NamedTuple

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from search_spaces.parameters import Space
from service.samplers.optuna_base import Learner
from service.samplers.optuna_history import common_parameters

__all__ = ["POPULATION", "Generations"]

POPULATION = 8
"""With Optuna's default of 50, a budget of 64 trials would be hardly more than one generation."""


class Sampler(Learner):
    """Proposals by NSGA-II. See `service.samplers.sampler` for the other arguments.

    Args:
        population_size: Trials in a generation, and parents of the next; at least 4.
    """

    fixed = True
    tries = 20

    def __init__(self, space: Space, objectives: Sequence[str], seed: int, population_size: int | None = None) -> None:
        super().__init__(space, objectives, seed)
        self._population = POPULATION if population_size is None else population_size
        self._bred = [_Bred([], [])]

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        return Generations(self._population, number // self._population, seed, self._bred)

    def _ready(self, number: int) -> bool:
        earlier = number // self._population * self._population
        return 2 * sum(other < earlier for other in self._finished) >= self._population


class _Bred(NamedTuple):
    """The parents of a generation, and the finished trials of the generation before, of which some are among them."""

    population: list[FrozenTrial]
    parents: list[FrozenTrial]


class Generations(optuna.samplers.NSGAIISampler):
    """NSGA-II whose generations follow from the trials' numbers.

    Args:
        population_size: Trials in a generation.
        generation: Generation of the trial that is being proposed.
        seed: Seed of its random draws.
        bred: By generation, the parents as computed for earlier proposals; kept up to date.
    """

    def __init__(self, population_size: int, generation: int, seed: int, bred: list[_Bred]) -> None:
        super().__init__(population_size=population_size, seed=seed)
        self._size = population_size
        self._generation = generation
        self._bred = bred
        self._populations: dict[int, list[FrozenTrial]] | None = None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that are proposed together: all that vary, since every trial has all; see Optuna."""
        return common_parameters(next(iter(self._finished(study).values()), []))

    def get_trial_generation(self, study: optuna.Study, trial: FrozenTrial) -> int:
        """Generation of the trial that is being proposed."""
        return self._generation

    def get_population(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        """The finished trials of a generation."""
        return self._finished(study).get(generation, [])

    def get_parent_population(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        """The parents of a generation; computed generation by generation, to avoid a deep recursion."""
        for later in range(1, generation + 1):
            population = self.get_population(study, later - 1)
            if later < len(self._bred) and self._bred[later].population != population:
                del self._bred[later:]
            if later == len(self._bred):
                self._bred.append(_Bred(population, self.select_parent(study, later)))
        return self._bred[generation].parents

    def _finished(self, study: optuna.Study) -> dict[int, list[FrozenTrial]]:
        """The finished trials by generation."""
        if self._populations is None:
            self._populations = {}
            for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
                self._populations.setdefault(trial.user_attrs["number"] // self._size, []).append(trial)
        return self._populations
