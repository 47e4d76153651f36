"""CMA-ES, an evolution strategy for continuous spaces and one objective, from the package of the same name.

Hansen, "The CMA Evolution Strategy: A Tutorial" (2016). The first `STARTUP` (or dimensions + 2) configurations are
quasi-random. The distribution begins around the best of them, with a standard deviation of `SIGMA` of every range, and
is updated with `population_size` finished trials at a time, in the order of their numbers, whenever they were proposed.
(Optuna's own sampler counts the trials that had finished when each trial was proposed, which the rows do not hold.)
A proposal is a draw from it. A diverged trial counts as the worst.

Ranges are modelled on their own scale; whole numbers and numbers to choose from are rounded. There must be at least two
hyperparameters, and none with options without an order or extra points (`driftline.study.sampler.check_suits`).

Guarantee: a proposal is a function of (space, seed, number, population_size, finished trials), and of the running
trials, which it must not repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from cmaes import CMA
from numpy.typing import NDArray

from driftline.study.sampler import check_suits
from search_spaces.constraints import all_hold
from search_spaces.parameters import Choice, Parameter, Space, is_fixed
from service.samplers.optuna_base import Learner
from service.samplers.sampler import Hyperparameters

__all__ = ["SIGMA"]

SIGMA = 0.2


class Sampler(Learner):
    """Proposals by CMA-ES. See `service.samplers.sampler` for the other arguments.

    Args:
        population_size: Trials of an update; 4 + 3 log(dimensions) by default.

    Raises:
        InvalidSpec: There are two objectives, or the space is not continuous.
    """

    tries = 64

    def __init__(self, space: Space, objectives: Sequence[str], seed: int, population_size: int | None = None) -> None:
        super().__init__(space, objectives, seed)
        check_suits("cmaes", space, objectives)
        usual = 4 + int(3 * np.log(max(len(self._free), 1)))
        self._population = usual if population_size is None else population_size

    def _propose(self, number: int) -> Hyperparameters:
        tried = self._known(number)
        strategy = self._strategy(int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0]))
        for _ in range(self.tries):
            hyperparameters = self._decoded(strategy.ask())
            if hyperparameters not in tried and all_hold(self._constraints, hyperparameters):
                return hyperparameters
        return self._fresh(number, hyperparameters)

    def _strategy(self, seed: int) -> CMA:
        """The distribution after all finished trials."""
        told = [values[0] for _, values in self._finished.values() if values is not None]
        worst = min(told, default=0.0)
        rows = [(number, *self._finished[number]) for number in sorted(self._finished)]
        trials = [
            (number, self._encoded(point), worst if values is None else values[0]) for number, point, values in rows
        ]
        first = [(value, -number, encoded) for number, encoded, value in trials if number < self._startup]
        mean = max(first, key=lambda row: row[:2])[2] if first else np.full(len(self._free), 0.5)
        bounds = np.tile([0.0, 1.0], (len(self._free), 1))
        strategy = CMA(mean=mean, sigma=SIGMA, bounds=bounds, seed=seed, population_size=self._population)
        later = [(encoded, -value) for number, encoded, value in trials if number >= self._startup]
        for end in range(self._population, len(later) + 1, self._population):
            if strategy.should_stop():
                break
            strategy.tell(later[end - self._population : end])
        return strategy

    def _encoded(self, hyperparameters: Hyperparameters) -> NDArray[np.float64]:
        return np.array([_place(self._space[name], hyperparameters[name]) for name in self._free])

    def _decoded(self, encoded: NDArray[np.float64]) -> Hyperparameters:
        coordinates = dict(zip(self._free, encoded.tolist(), strict=True))
        return {
            name: parameter.ends()[0] if is_fixed(parameter) else _value(parameter, coordinates[name])
            for name, parameter in self._space.items()
        }


def _place(parameter: Parameter, value: Any) -> float:
    """The place of a value in its range, from 0 to 1."""
    if isinstance(parameter, Choice):
        return sorted(parameter.options).index(value) / (len(parameter.options) - 1)
    return parameter.place(value)


def _value(parameter: Parameter, coordinate: float) -> Any:
    if isinstance(parameter, Choice):
        return sorted(parameter.options)[round(coordinate * (len(parameter.options) - 1))]
    return parameter.at(coordinate)
