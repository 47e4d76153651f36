"""Optuna's Gaussian processes with expected hypervolume improvement; see `service.samplers.optuna_base`. Needs torch.

The first n = max(10, dimensions + 2) configurations are quasi-random; so are all further ones until n trials have
finished and two of them have different values. The gain of a proposal is averaged over possible results of the running
trials, so that parallel proposals differ. A separate Gaussian process models whether a configuration diverges.

* A proposal costs about 1 second of one core with 64 finished trials, 1.7 with 256 and 4 with 512 (two objectives, four
  hyperparameters, 8 running), so the processes are fitted to at most `cap` trials: the cap/2 best (non-dominated
  sorting with crowding), up to cap/4 diverged ones, the newest, and then the newest others. Of the running trials, the
  newest cap/4 count.
* One near-divergence at -1e6 would hide every difference between good trials. For each objective, values further below
  the median than the best is above it are therefore raised to that distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

from driftline.results.pareto import select
from search_spaces.constraints import all_hold
from search_spaces.parameters import Space
from service.samplers import random
from service.samplers.allowed import Filtered
from service.samplers.optuna_base import Learner
from service.samplers.optuna_parameters import encode, suggest
from service.samplers.sampler import Hyperparameters

if TYPE_CHECKING:
    import optuna

    from service.samplers.optuna_history import Heard

__all__ = ["CANDIDATES", "CAP", "chosen", "raised"]

CAP = 64
CANDIDATES = 1024
"""Random configurations to choose from where the best proposal breaks a constraint."""


class Sampler(Learner):
    """Proposals by Gaussian processes. See `service.samplers.sampler` for the other arguments.

    Args:
        cap: Most finished trials to which the processes are fitted; at least 16, by default `CAP`.
    """

    fixed = True
    tries = 1
    constrained_tries = 1

    def __init__(self, space: Space, objectives: Sequence[str], seed: int, cap: int | None = None) -> None:
        super().__init__(space, objectives, seed)
        self._cap = CAP if cap is None else cap

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        import optuna

        if not self._constraints:
            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=0)
        from service.samplers.gp_within import Within

        return Within(seed, self._keeps, self._candidates)

    def _keeps(self, params: Mapping[str, Any]) -> bool:
        """Whether Optuna's parameters stand for a configuration that breaks no constraint."""
        import optuna

        trial = optuna.trial.FixedTrial(dict(params))
        values = {name: suggest(trial, name, parameter, fixed=True) for name, parameter in self._space.items()}
        return all_hold(self._constraints, values)

    @cached_property
    def _candidates(self) -> list[dict[str, Any]]:
        """Random configurations that break no constraint, as Optuna's parameters."""
        drawn = Filtered(random.Sampler(self._space, self._objectives, self._seed), self._constraints)
        return [
            {
                key: value
                for name in self._free
                for key, _, value in encode(name, self._space[name], configuration[name], fixed=True)
            }
            for configuration in map(drawn.ask, range(CANDIDATES))
        ]

    def _ready(self, number: int) -> bool:
        told = {values for _, values in self._finished.values() if values is not None}
        return super()._ready(number) and len(told) > 1

    def _running(self, number: int) -> dict[int, Hyperparameters]:
        running = super()._running(number)
        return {trial: running[trial] for trial in sorted(running)[-(self._cap // 4) :]}

    def _told(self) -> Heard:
        kept = chosen(self._finished, self._cap)
        return raised({number: self._finished[number] for number in kept})


def chosen(heard: Heard, cap: int) -> list[int]:
    """Numbers of at most `cap` finished trials: the best half, a quarter diverged, and the newest; see the module.

    Args:
        heard: All finished trials.
        cap: Most trials to choose.

    Returns:
        Their numbers in ascending order, whatever the order in which the trials finished.

    Examples:
        >>> chosen({0: ({}, (9.0,)), 1: ({}, None), 2: ({}, (1.0,)), 3: ({}, (8.0,)), 4: ({}, (2.0,))}, 4)
        [0, 1, 3, 4]
    """
    numbers = sorted(heard)
    if len(numbers) <= cap:
        return numbers
    told = [(number, values) for number in numbers if (values := heard[number][1]) is not None]
    kept = {told[index][0] for index in select([values for _, values in told], cap // 2)}
    kept.update([number for number in numbers if heard[number][1] is None][-(cap // 4) :])
    rest = [number for number in numbers if number not in kept]
    return sorted([*kept, *rest[len(rest) - (cap - len(kept)) :]])


def raised(heard: Heard) -> Heard:
    """The trials with low outliers raised: no value is further below the median than the best is above it.

    Args:
        heard: Finished trials.

    Examples:
        >>> raised({0: ({}, (-1e6,)), 1: ({}, (1.0,)), 2: ({}, (3.0,))})
        {0: ({}, (-1.0,)), 1: ({}, (1.0,)), 2: ({}, (3.0,))}
    """
    told = [values for _, values in heard.values() if values is not None]
    floors = []
    for column in zip(*told, strict=True):
        room = max(column) - median(column)
        floors.append(median(column) - room if room > 0 else min(column))
    return {
        number: (hyperparameters, values and tuple(max(pair) for pair in zip(values, floors, strict=True)))
        for number, (hyperparameters, values) in heard.items()
    }
