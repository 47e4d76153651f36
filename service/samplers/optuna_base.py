"""What the samplers that learn have in common: Optuna, asked anew for every proposal.

For every proposal an in-memory Optuna study is built from what has been heard, in the order of the trials' numbers,
with a seed that is a function of (seed, number): a rebuilt sampler proposes what the interrupted one would have, in
whatever order the results arrived. (To the bit with the same versions of Optuna, NumPy and, for gp, torch on the same
kind of machine.)

* A diverged trial is told as the worst value seen so far with a violated constraint. Told as failed, nobody would ever
  hear of it, and diverging configurations be proposed for ever.
* A failed trial is forgotten.
* Until enough is known the configurations are the quasi-random sampler's.
* A configuration that has been tried, or is being tried, is not proposed again where it can be helped: at one seed it
  would give the same curve once more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from search_spaces.parameters import Space
from search_spaces.spaces import free
from service.samplers import quasi_random
from service.samplers.base import Hyperparameters
from service.samplers.optuna_parameters import suggest

if TYPE_CHECKING:
    import optuna

    from service.samplers.optuna_trials import Trials

STARTUP = 10
_FURTHER = 256  # quasi-random configurations that are looked at for a new one

Heard = dict[int, tuple[Hyperparameters, tuple[float, ...] | None]]
"""Finished trials by number: configuration and values, larger is better; None where it diverged."""


class Learner:
    """Base of the samplers that learn. See `service.samplers.base` for the arguments.

    A subclass makes Optuna's sampler (`_optuna`), and may say when it knows enough (`_ready`) and what Optuna hears
    (`_told`).
    """

    fixed: ClassVar[bool]
    """Every configuration has the same coordinates, see `service.samplers.optuna_parameters`."""
    tries: ClassVar[int]
    """Proposals of one trial until one is new; then it is the quasi-random sampler's."""

    def __init__(self, space: Space, objectives: Sequence[str], seed: int) -> None:
        self._space = {name: space[name] for name in sorted(space)}
        self._free = free(space)
        self._objectives = tuple(objectives)
        self._seed = seed
        self._startup = max(STARTUP, len(self._free) + 2)
        self._first = quasi_random.Sampler(space, objectives, seed)
        self._pending: dict[int, Hyperparameters] = {}
        self._finished: Heard = {}

    def ask(self, number: int) -> Hyperparameters:
        """A configuration for trial `number`, given what has been heard; pending from now on."""
        hyperparameters = self._propose(number) if self._free and self._ready(number) else self._first.ask(number)
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
        """How trial `number` went; see the protocol."""
        self._pending.pop(number, None)
        if diverged:
            self._finished[number] = (dict(hyperparameters), None)
        elif values is not None:
            self._finished[number] = (dict(hyperparameters), tuple(float(values[name]) for name in self._objectives))

    def _optuna(self, number: int, seed: int) -> optuna.samplers.BaseSampler:
        """Optuna's sampler for trial `number`."""
        raise NotImplementedError

    def _ready(self, number: int) -> bool:
        """Whether enough is known for a proposal; the quasi-random configuration is taken otherwise."""
        return number >= self._startup and len(self._finished) >= self._startup

    def _told(self) -> Heard:
        """The finished trials that Optuna hears of."""
        return self._finished

    def _running(self, number: int) -> dict[int, Hyperparameters]:
        """The unfinished trials that Optuna hears of, but for `number`, which is about to be proposed."""
        return {other: hyperparameters for other, hyperparameters in self._pending.items() if other != number}

    def _history(self, number: int) -> list[optuna.trial.FrozenTrial]:
        """What has been heard, as Optuna's trials in the order of their numbers."""
        return self._trials.made(self._told(), self._running(number))

    @cached_property
    def _trials(self) -> Trials:
        from service.samplers.optuna_trials import Trials

        return Trials({name: self._space[name] for name in self._free}, len(self._objectives), fixed=self.fixed)

    def _propose(self, number: int) -> Hyperparameters:
        import optuna

        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        known = [hyperparameters for hyperparameters, _ in self._finished.values()]
        known += Learner._running(self, number).values()
        with _quiet():
            study = optuna.create_study(
                directions=["maximize"] * len(self._objectives), sampler=self._optuna(number, seed)
            )
            study.add_trials(self._history(number))
            for _ in range(self.tries):
                trial = study.ask()
                hyperparameters = {
                    name: suggest(trial, name, parameter, fixed=self.fixed) for name, parameter in self._space.items()
                }
                if hyperparameters not in known:
                    return hyperparameters
        for other in range(number, number + _FURTHER):
            fresh = self._first.ask(other)
            if fresh not in known:
                return fresh
        return hyperparameters  # nothing else is left to be tried


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's lines on every study created and on conditional parameters, and NumPy's on a converged gp."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        optuna.logging.set_verbosity(before)
