"""Base of the samplers that learn: a new Optuna study for every proposal.

For every proposal an in-memory Optuna study begins with all results so far, in the order of the trials' numbers, with
a seed that is a function of (seed, number). A rebuilt sampler therefore proposes what the interrupted one would have
proposed, in whatever order the results arrived. (To the bit with the same versions of Optuna, NumPy and, for gp, torch
on the same kind of machine.)

* A diverged trial gets the worst value so far and a violated constraint. If it counted as failed, Optuna would ignore
  it, and propose diverging configurations forever.
* A failed trial is ignored.
* Until enough trials have finished, configurations are quasi-random.
* A configuration that was tried before, or is running, is not proposed again if that can be avoided: the search has one
  seed, so the curve would be the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from search_spaces.constraints import Constraint, all_hold
from search_spaces.parameters import Space
from search_spaces.spaces import free
from service.samplers import quasi_random
from service.samplers.allowed import Filtered
from service.samplers.finite_spaces import unused
from service.samplers.optuna_parameters import suggest
from service.samplers.sampler import Hyperparameters, Sampler

if TYPE_CHECKING:
    import optuna

    from service.samplers.optuna_history import Heard, History

STARTUP = 10
_FURTHER = 256  # quasi-random configurations among which to look for a new one


class Learner:
    """Base of the samplers that learn. See `service.samplers.sampler` for the arguments.

    A subclass makes Optuna's sampler (`_optuna`). It may redefine when it knows enough (`_ready`), and which trials
    Optuna gets (`_told`, `_running`).
    """

    fixed: ClassVar[bool]
    """Whether every configuration has the same coordinates, see `service.samplers.optuna_parameters`."""
    tries: ClassVar[int]
    """How many proposals to draw until one is new; if none is, the configuration is quasi-random."""
    constrained_tries: ClassVar[int] = 64
    """How many proposals to draw where a proposal must also break no constraint."""

    def __init__(self, space: Space, objectives: Sequence[str], seed: int) -> None:
        self._space = {name: space[name] for name in sorted(space)}
        self._free = free(space)
        self._objectives = tuple(objectives)
        self._seed = seed
        self._startup = max(STARTUP, len(self._free) + 2)
        self._first: Sampler = quasi_random.Sampler(space, objectives, seed)
        self._constraints: Sequence[Constraint] = ()
        self._pending: dict[int, Hyperparameters] = {}
        self._finished: Heard = {}

    def begin_with(self, first: Sampler) -> None:
        """Takes configurations from this quasi-random sampler until enough trials have finished."""
        self._first = first

    def constrain(self, constraints: Sequence[Constraint]) -> None:
        """From now on, proposes only configurations that break no constraint."""
        self._constraints = constraints
        self._first = Filtered(self._first, constraints)

    def ask(self, number: int) -> Hyperparameters:
        """A configuration for trial `number`, based on all results so far; the trial is pending from now on."""
        hyperparameters = self._propose(number) if self._free and self._ready(number) else self._fresh(number)
        self._pending[number] = hyperparameters
        return dict(hyperparameters)

    def pending(self, number: int, hyperparameters: Mapping[str, Any]) -> None:
        """Trial `number` has been proposed and is not finished."""
        self._pending[number] = dict(hyperparameters)

    def tell(
        self,
        number: int,
        hyperparameters: Mapping[str, Any],
        values: Mapping[str, float] | None,
        diverged: bool = False,
    ) -> None:
        """Takes the result of trial `number`."""
        self._pending.pop(number, None)
        if diverged:
            self._finished[number] = (dict(hyperparameters), None)
        elif values is not None:
            self._finished[number] = (dict(hyperparameters), tuple(float(values[name]) for name in self._objectives))

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        """Optuna's sampler for trial `number`."""
        raise NotImplementedError

    def _ready(self, number: int) -> bool:
        """Whether enough trials have finished for a proposal; otherwise the configuration is quasi-random."""
        return number >= self._startup and len(self._finished) >= self._startup

    def _told(self) -> Heard:
        """The finished trials that Optuna gets."""
        return self._finished

    def _running(self, number: int) -> dict[int, Hyperparameters]:
        """The unfinished trials that Optuna gets, except `number`, which is about to be proposed."""
        return {trial: hyperparameters for trial, hyperparameters in self._pending.items() if trial != number}

    def _history(self, number: int) -> list[optuna.trial.FrozenTrial]:
        """The trials that Optuna gets, in the order of their numbers."""
        return self._trials.made(self._told(), self._running(number))

    def _study(self, number: int, seed: int) -> optuna.Study:
        """The study that proposes trial `number`."""
        import optuna

        from service.samplers.optuna_history import StartedStorage

        return optuna.create_study(
            directions=["maximize"] * len(self._objectives),
            sampler=self._optuna(number, seed),
            storage=StartedStorage(self._history(number)),
        )

    @cached_property
    def _trials(self) -> History:
        from service.samplers.optuna_history import History

        return History({name: self._space[name] for name in self._free}, len(self._objectives), fixed=self.fixed)

    def _propose(self, number: int) -> Hyperparameters:
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        tried = self._known(number)
        with _quiet():
            study = self._study(number, seed)
            for _ in range(self.constrained_tries if self._constraints else self.tries):
                trial = study.ask()
                hyperparameters = {
                    name: suggest(trial, name, parameter, fixed=self.fixed) for name, parameter in self._space.items()
                }
                if hyperparameters not in tried and all_hold(self._constraints, hyperparameters):
                    return hyperparameters
        return self._fresh(number, hyperparameters)

    def _known(self, number: int) -> list[Hyperparameters]:
        """The configurations that were tried or are running."""
        tried = [hyperparameters for hyperparameters, _ in self._finished.values()]
        return [*tried, *Learner._running(self, number).values()]

    def _fresh(self, number: int, otherwise: Hyperparameters | None = None) -> Hyperparameters:
        """A quasi-random configuration that is new, or if there is none, `otherwise`, if that breaks no constraint."""
        tried = self._known(number)
        for candidate in range(number, number + _FURTHER):
            fresh = self._first.ask(candidate)
            if fresh not in tried:
                return fresh
        last = unused(self._space, self._constraints, tried)
        if last is not None:
            return last
        return self._first.ask(number) if otherwise is None or self._constraints else otherwise


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences Optuna's messages on new studies and conditional parameters, and NumPy's on a converged gp."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        optuna.logging.set_verbosity(before)
