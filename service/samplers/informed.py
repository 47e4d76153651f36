"""A sampler that draws some of its proposals around configurations that were good before (`prior` of an entry).

The prior is a mixture: one of the given configurations, each equally likely, with every hyperparameter moved a little
(`search_spaces.neighbours`), so that combinations stay together. It is a hint, which may be wrong:

* At most `SHARE` of the proposals are from the prior; the others are the inner sampler's own.
* The share falls with the number of trials, as 1 / number after the first `STARTUP`: of 64 trials, about 14.
* The inner sampler is told all results. So a wrong prior costs the trials that it proposed, and their results show
  which configurations are bad.

Whether a proposal is from the prior is a function of (seed, number).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from search_spaces.constraints import Constraint, all_hold
from search_spaces.neighbours import near
from search_spaces.parameters import Space
from service.samplers.sampler import Hyperparameters, PassesOn, Sampler

SHARE = 0.5
STARTUP = 10
_DRAWS = 64  # configurations to draw until one is new and breaks no constraint


class Informed(PassesOn):
    """Proposes around good configurations, or what an inner sampler proposes.

    Args:
        inner: Proposes the other configurations, and is told of all trials.
        space: Parameters by dotted name.
        seed: Seed of all random draws.
        prior: Good configurations inside the space; what one leaves out is drawn from the whole range.
        constraints: What every configuration satisfies.
    """

    def __init__(
        self,
        inner: Sampler,
        space: Space,
        seed: int,
        prior: Sequence[Mapping[str, Any]],
        constraints: Sequence[Constraint] = (),
    ) -> None:
        super().__init__(inner)
        self._space = {name: space[name] for name in sorted(space)}
        self._seed = seed
        self._prior = [dict(point) for point in prior]
        self._constraints = constraints
        self._known: dict[int, Mapping[str, Any]] = {}

    def ask(self, number: int) -> Hyperparameters:
        """A configuration for trial `number`."""
        generator = np.random.default_rng([self._seed, number, len(self._prior)])
        if generator.random() < share(number):
            tried = list(self._known.values())
            for _ in range(_DRAWS):
                hyperparameters = self._drawn(generator)
                if hyperparameters not in tried and all_hold(self._constraints, hyperparameters):
                    self.pending(number, hyperparameters)
                    return hyperparameters
        hyperparameters = self._inner.ask(number)
        self._known[number] = dict(hyperparameters)
        return hyperparameters

    def pending(self, number: int, hyperparameters: Mapping[str, Any]) -> None:
        """Trial `number` has been proposed and is not finished."""
        self._known[number] = dict(hyperparameters)
        super().pending(number, hyperparameters)

    def tell(
        self,
        number: int,
        hyperparameters: Mapping[str, Any],
        values: Mapping[str, float] | None,
        diverged: bool = False,
    ) -> None:
        """Takes the result of trial `number`."""
        self._known[number] = dict(hyperparameters)
        super().tell(number, hyperparameters, values, diverged)

    def _drawn(self, generator: np.random.Generator) -> Hyperparameters:
        point = self._prior[int(generator.integers(len(self._prior)))]
        return {
            name: near(parameter, point[name], generator) if name in point else parameter.sample(generator)
            for name, parameter in self._space.items()
        }


def share(number: int) -> float:
    """Probability that trial `number` is drawn from the prior.

    Examples:
        >>> share(0), share(9), share(19), share(99)
        (0.5, 0.5, 0.25, 0.05)
    """
    return SHARE * STARTUP / max(STARTUP, number + 1)
