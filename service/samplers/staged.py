"""Tuning in stages, for grids of few values: one hyperparameter, or one group of them, after the other.

Which hyperparameters a stage varies and how many trials it has: `driftline.study.stages`. All other values in a
stage are those of the configuration with the best result of the earlier stages; a diverged or failed one is never the
best. The driver asks for a stage when all trials of the stage before have ended.

If all values of a stage have been tried, because of constraints or in later turns, the stage varies the next best
configurations, then the hyperparameters of the next stages, and last takes the rest of the grid. The seed is not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from driftline.study.sampler import STAGED, check_suits
from driftline.study.stages import grids, sizes, stage_names, stage_of
from search_spaces.constraints import Constraint, all_hold
from search_spaces.parameters import Space
from search_spaces.values import identity
from service.samplers.allowed import first_allowed
from service.samplers.sampler import Hyperparameters

__all__: list[str] = []


class Sampler:
    """Proposes one stage after the other. See `service.samplers.sampler` for the other arguments.

    Args:
        stages: Names of the hyperparameters of each stage.
        start: Complete configurations that are tried first.
        constraints: What every proposal satisfies.

    Raises:
        InvalidSpec: There are two objectives, or a hyperparameter is in no stage.
    """

    def __init__(
        self,
        space: Space,
        objectives: Sequence[str],
        seed: int,
        stages: Sequence[Sequence[str]] | None = None,
        start: Sequence[Hyperparameters] = (),
        constraints: Sequence[Constraint] = (),
    ) -> None:
        del seed
        check_suits(STAGED, space, objectives)
        self._objective = objectives[0]
        self._stages = stage_names(space, stages)
        self._values = grids(space, start)
        self._sizes = sizes(self._stages, self._values, len(start))
        self._ahead = int(len(start) > 1)  # stages before the first that varies something
        self._begin = dict(start[0]) if start else next(self.grid())
        self._constraints = constraints
        self._tried: dict[int, Hyperparameters] = {}
        self._results: dict[int, float] = {}

    def grid(self) -> Iterator[Hyperparameters]:
        """All configurations; the first has the first value of each hyperparameter."""
        return self._varied({}, self._values)

    def ask(self, number: int) -> Hyperparameters:
        """The first untried configuration of the stage of trial `number`."""
        self._tried[number] = next(self._candidates(number))
        return dict(self._tried[number])

    def pending(self, number: int, hyperparameters: Mapping[str, Any]) -> None:
        """Trial `number` has been proposed and is not finished."""
        self._tried[number] = dict(hyperparameters)

    def tell(
        self,
        number: int,
        hyperparameters: Mapping[str, Any],
        values: Mapping[str, float] | None,
        diverged: bool = False,
    ) -> None:
        """Takes the result of trial `number`; without values, it is never the best."""
        del diverged
        self._tried[number] = dict(hyperparameters)
        if values is not None:
            self._results[number] = values[self._objective]

    def _candidates(self, number: int) -> Iterator[Hyperparameters]:
        """Configurations for trial `number`, in order of preference; if all were tried, the best one again."""
        stage, first, _ = stage_of(self._sizes, number)
        earlier = sorted((-value, trial) for trial, value in self._results.items() if trial < first)
        bases = [*(self._tried[trial] for _, trial in earlier), self._begin]
        turn = (stage - self._ahead) % max(len(self._stages), 1)
        groups = [*self._stages[turn:], *self._stages[:turn]]
        candidates = itertools.chain(*(self._varied(base, group) for group in groups for base in bases), self.grid())
        tried = {identity(point) for trial, point in self._tried.items() if trial != number}
        for point in candidates:
            if all_hold(self._constraints, point) and identity(point) not in tried:
                yield point
        yield first_allowed(itertools.chain(bases, self.grid()), self._constraints)

    def _varied(self, base: Hyperparameters, names: Iterable[str]) -> Iterator[Hyperparameters]:
        """A configuration with all values of some hyperparameters."""
        for values in itertools.product(*(self._values[name] for name in names)):
            yield base | dict(zip(names, values, strict=True))
