"""The samplers of a search whose trials may stop early: one for each rung.

A rung's sampler is told values at this rung only, of the trials that trained until it, so that values after different
numbers of rounds never meet in one model. A trial that was stopped before stays pending there: the rung's sampler does
not propose it again, and hears no value that the trial does not have. All samplers are told of a diverged trial.

A configuration is proposed by the sampler of the highest rung at which enough trials have arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftline.study.sampler import STAGED, Chosen, name_of, settings_of
from search_spaces.parameters import Space
from search_spaces.spaces import free
from service.samplers.optuna_base import STARTUP
from service.samplers.sampler import Hyperparameters, Sampler


def enough(sampler: Chosen, space: Space) -> int:
    """How many trials must have arrived at a rung before its sampler proposes.

    Args:
        sampler: From `driftline.study.sampler.read`.
        space: Parameters by dotted name.
    """
    if name_of(sampler) == STAGED:
        return 1  # one result is enough for the best so far
    settings = settings_of(sampler)
    startup = settings.get("startup", max(STARTUP, len(free(space)) + 2))
    return max(int(startup), int(settings.get("population_size", 0)))  # nsga2 breeds from half a population, or draws


class ByRung:
    """One sampler for each rung; with a single rung, this sampler alone.

    Args:
        samplers: The samplers, with the same space, objectives, seed and starting points.
        least: How many trials must have arrived at a rung, except the first, before its sampler proposes.
    """

    def __init__(self, samplers: Sequence[Sampler], least: int) -> None:
        self._samplers = samplers
        self._least = least
        self._arrived = [0] * len(samplers)

    def ask(self, number: int) -> Hyperparameters:
        """A configuration for trial `number`, which is pending at all rungs from now on."""
        ready = [rung for rung, arrived in enumerate(self._arrived) if arrived >= self._least]
        chosen = self._samplers[max(ready, default=0)]
        hyperparameters = chosen.ask(number)
        for sampler in self._samplers:
            if sampler is not chosen:
                sampler.pending(number, hyperparameters)
        return hyperparameters

    def pending(self, number: int, hyperparameters: Mapping[str, Any]) -> None:
        """Trial `number` has been proposed and has not ended."""
        for sampler in self._samplers:
            sampler.pending(number, hyperparameters)

    def tell(
        self,
        number: int,
        hyperparameters: Mapping[str, Any],
        values: Sequence[Mapping[str, float]],
        state: str,
    ) -> None:
        """Takes the result of trial `number`, which has ended.

        Args:
            number: Its number within the label's search.
            hyperparameters: The trial's hyperparameters.
            values: At each rung that it has reached, the value of each objective, larger is better.
            state: COMPLETE, STOPPED, DIVERGED, or anything else for a trial that failed.
        """
        if state not in ("COMPLETE", "STOPPED"):
            for sampler in self._samplers:
                sampler.tell(number, hyperparameters, None, state == "DIVERGED")
            return
        for rung, reached in enumerate(values):
            self._samplers[rung].tell(number, hyperparameters, reached)
            self._arrived[rung] += 1
