"""The trials that Optuna gets before it proposes: made once, and shared by all proposals."""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from search_spaces.parameters import Parameter
from service.samplers.optuna_parameters import encode
from service.samplers.sampler import Hyperparameters

Heard = dict[int, tuple[Hyperparameters, tuple[float, ...] | None]]
"""Finished trials by number: configuration and values, larger is better; None if the trial diverged."""

_Outcome = tuple[tuple[float, ...], float | None] | None
"""Values of a finished trial, and, if any trial diverged, 1 if this one did or 0; None for a running trial."""


class History:
    """The trials of one label, as Optuna reads them.

    Every proposal needs all of them, and making them costs more than the proposal. So each is made once, and again only
    when it changes: when it finishes, or when the worst value changes, which diverged trials have.

    Args:
        free: The hyperparameters with more than one value.
        objectives: How many values a trial has.
        fixed: Whether every configuration has the same coordinates, as in `encode`.
    """

    def __init__(self, free: Mapping[str, Parameter], objectives: int, *, fixed: bool) -> None:
        self._free = free
        self._objectives = objectives
        self._fixed = fixed
        self._made: dict[int, tuple[_Outcome, FrozenTrial]] = {}
        self._distributions: dict[str, BaseDistribution] = {}

    def made(self, heard: Heard, running: Mapping[int, Hyperparameters]) -> list[FrozenTrial]:
        """Optuna's trials in the order of their numbers.

        Args:
            heard: The finished trials. A diverged one has the worst of all values, and a violated constraint.
            running: Configurations of unfinished trials.
        """
        finite = [values for _, values in heard.values() if values is not None]
        worst = tuple(min(column) for column in zip(*finite, strict=True)) or (0.0,) * self._objectives
        constrained = len(finite) < len(heard)
        trials = []
        for number in sorted(heard.keys() | running.keys()):
            hyperparameters, values = heard.get(number, (None, None))
            outcome: _Outcome = None
            if hyperparameters is not None:
                violated = (1.0 if values is None else 0.0) if constrained else None
                outcome = (worst if values is None else values, violated)
            cached = self._made.get(number)
            if cached is None or cached[0] != outcome:
                configuration = running[number] if hyperparameters is None else hyperparameters
                cached = self._made[number] = (outcome, self._trial(number, configuration, outcome))
            trials.append(cached[1])
        return trials

    def _trial(self, number: int, hyperparameters: Hyperparameters, outcome: _Outcome) -> FrozenTrial:
        coordinates = [
            triple
            for name, parameter in self._free.items()
            for triple in encode(name, parameter, hyperparameters[name], fixed=self._fixed)
        ]
        facts: dict[str, Any] = {"state": TrialState.RUNNING}
        if outcome is not None:
            values, violated = outcome
            facts = {"values": list(values)}
            if violated is not None:
                facts["constraints"] = {"diverged": violated}
        trial = create_trial(
            params={key: value for key, _, value in coordinates},
            distributions={key: self._distributions.setdefault(key, kind) for key, kind, _ in coordinates},
            user_attrs={"number": number},
            **facts,
        )
        trial.__class__ = SharedTrial
        return trial


class StartedStorage(InMemoryStorage):
    """Optuna's storage in memory for one study that begins with some trials.

    `Study.add_trials` would check and copy each of them for every proposal. Nobody changes them, so they stay outside
    of what this storage owns, and its own trials are numbered after them.

    Args:
        trials: They get the numbers 0, 1, ...
    """

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._first = trials
        for number, trial in enumerate(trials):
            trial.number = number

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """The first trials, which are never copied, and then its own; see Optuna."""
        first = self._first if states is None else [trial for trial in self._first if trial.state in states]
        return [*first, *map(self._numbered, super().get_all_trials(study_id, deepcopy, states))]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """One of its own trials; see Optuna."""
        return self._numbered(super().get_trial(trial_id))

    def get_trial_number_from_id(self, trial_id: int) -> int:
        """The number of one of its own trials; see Optuna."""
        return super().get_trial_number_from_id(trial_id) + len(self._first)

    def _numbered(self, original: FrozenTrial) -> FrozenTrial:
        trial = copy.copy(original)
        trial.number += len(self._first)
        return trial


def common_parameters(trials: Sequence[FrozenTrial]) -> dict[str, BaseDistribution]:
    """Optuna's parameters that all trials of a history have, by name, in the order of their names.

    This is what Optuna's `IntersectionSearchSpace` computes, which compares the distributions of all trials; those of a
    history are the same.
    """
    names = set.intersection(*(set(trial.params) for trial in trials)) if trials else set()
    distributions = {name: trials[0].distributions[name] for name in sorted(names)}
    return {name: distribution for name, distribution in distributions.items() if not distribution.single()}


class SharedTrial(FrozenTrial):
    """A trial that caches what TPE needs again for each hyperparameter of each proposal."""

    @cached_property
    def constraints(self) -> dict[str, float]:
        """Amounts by which constraints are violated; see Optuna."""
        return super().constraints

    @cached_property
    def internal(self) -> dict[str, float]:
        """Values by name, as Optuna's densities have them."""
        return {name: kind.to_internal_repr(self.params[name]) for name, kind in self.distributions.items()}
