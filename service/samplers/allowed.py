"""Configurations that satisfy an entry's constraints (`search_spaces.constraints`) and are new, from any sampler.

A configuration that breaks a constraint is replaced before it is proposed:

* Samplers that do not learn are sequences. Trial n gets configuration n of the sequence. If that breaks a constraint
  (`Filtered`) or, in a space with finitely many configurations, has been tried (`Distinct`), it gets the next allowed
  one from far behind in the sequence (`reserve`). Labels with other constraints therefore still share all other trials.
  A grid ends, so trial n gets the n-th of its points that break no constraint.
* The samplers that learn draw again while they propose (`service.samplers.optuna_base`).
* A proposal of another package's sampler that learns is replaced by such a point of the quasi-random sequence
  (`Replaced`), and the sampler is told so.

A proposal therefore remains a function of (space, constraints, seed, number, all that was told).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from driftline.errors import InvalidSpec
from search_spaces.constraints import Constraint, all_hold
from search_spaces.parameters import Space
from service.samplers.finite_spaces import count, unused
from service.samplers.sampler import Hyperparameters, LearnsNothing, PassesOn, Sampler

_TRIES = 64
_RESERVE = 2**20  # numbers in a part of a sequence: more than a study has trials
MOST_DRAWS = 10_000
"""Configurations in a row that may break a constraint; `Study.check` refuses spaces where this could happen."""


def reserve(sampler: Sampler, part: int = 1) -> Iterator[Hyperparameters]:
    """The configurations far behind in a sampler's sequence, which replace those that cannot be used.

    Args:
        sampler: A sampler whose proposals depend on their number alone.
        part: Which part of the sequence; parts share no numbers.
    """
    return map(sampler.ask, itertools.count(part * _RESERVE))


def first_allowed(draws: Iterator[Hyperparameters], constraints: Sequence[Constraint]) -> Hyperparameters:
    """The first configuration that breaks no constraint.

    Raises:
        InvalidSpec: `MOST_DRAWS` configurations in a row break one.
    """
    for hyperparameters in itertools.islice(draws, MOST_DRAWS):
        if all_hold(constraints, hyperparameters):
            return hyperparameters
    texts = ", ".join(constraint.text for constraint in constraints)
    share = f"less than {100 / MOST_DRAWS:g} % of the space"
    raise InvalidSpec(
        "constraints", f"{share} satisfies {texts}: {MOST_DRAWS} configurations in a row did not: allow more of it"
    )


class Filtered(LearnsNothing):
    """A sampler that does not learn, without the configurations that break a constraint.

    Args:
        inner: A sampler whose proposals depend on their number alone.
        constraints: What every proposal satisfies.
        endless: Whether the sequence has a reserve; a grid has none.
    """

    def __init__(self, inner: Sampler, constraints: Sequence[Constraint], endless: bool = True) -> None:
        self._inner = inner
        self._endless = endless
        self._reserve = reserve(inner) if endless else map(inner.ask, itertools.count())
        self._constraints = constraints
        self._allowed: list[Hyperparameters] = []

    def ask(self, number: int) -> Hyperparameters:
        """The inner sampler's configuration `number`, or its replacement."""
        while len(self._allowed) <= number:
            proposals = [self._inner.ask(len(self._allowed))] if self._endless else []
            self._allowed.append(first_allowed(itertools.chain(proposals, self._reserve), self._constraints))
        return dict(self._allowed[number])


class Distinct(LearnsNothing):
    """A sampler that does not learn, over a finite space, without repeats while there are other configurations.

    Args:
        inner: A sampler whose proposals depend on their number alone.
        space: Parameters by dotted name; finitely many configurations.
        constraints: What every proposal satisfies.
        without: Configurations that are tried anyway.
    """

    def __init__(
        self, inner: Sampler, space: Space, constraints: Sequence[Constraint], without: Sequence[Hyperparameters] = ()
    ) -> None:
        self._inner = inner
        self._reserve = reserve(inner)
        self._space = {name: space[name] for name in sorted(space)}
        self._constraints = constraints
        self._proposed: list[Hyperparameters] = []
        self._tried = [dict(point) for point in without]

    def ask(self, number: int) -> Hyperparameters:
        """A new configuration; after the last one, all of them come again in another order."""
        while len(self._proposed) <= number:
            proposal = self._inner.ask(len(self._proposed))
            hyperparameters = self._next(proposal)
            if hyperparameters is None:
                self._tried = []
                hyperparameters = self._next(proposal)
            if hyperparameters is None:
                hyperparameters = first_allowed(self._reserve, self._constraints)
            self._proposed.append(hyperparameters)
            self._tried.append(hyperparameters)
        return dict(self._proposed[number])

    def _next(self, proposal: Hyperparameters) -> Hyperparameters | None:
        """The inner sampler's configuration `proposal`, or else another one that was not tried."""
        if len(self._tried) < count(self._space):
            for hyperparameters in itertools.chain([proposal], itertools.islice(self._reserve, _TRIES)):
                if hyperparameters not in self._tried and all_hold(self._constraints, hyperparameters):
                    return hyperparameters
        return unused(self._space, self._constraints, self._tried)


class Replaced(PassesOn):
    """A sampler whose proposals are replaced where they break a constraint.

    Args:
        inner: The sampler that proposes; told of the replacements.
        constraints: What every proposal satisfies.
        spare: Proposes the replacements.
    """

    def __init__(self, inner: Sampler, constraints: Sequence[Constraint], spare: Filtered) -> None:
        super().__init__(inner)
        self._constraints = constraints
        self._spare = spare

    def ask(self, number: int) -> Hyperparameters:
        """The inner sampler's proposal, or its replacement."""
        hyperparameters = self._inner.ask(number)
        if not all_hold(self._constraints, hyperparameters):
            hyperparameters = self._spare.ask(number)
            self._inner.pending(number, hyperparameters)
        return hyperparameters
