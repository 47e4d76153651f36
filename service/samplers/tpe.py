"""Optuna's tree-structured Parzen estimator for one or two objectives.

For every proposal an in-memory Optuna study is built from what has been heard, in the order of the trials' numbers, so
that a rebuilt sampler proposes what the interrupted one would have. The first max(10, dimensions + 2) settings come
from the quasi-random sampler; so do all until as many have finished.

* Running trials count as bad ones until they finish (constant liar): parallel proposals keep apart.
* A diverged trial is told as the worst value seen so far with a violated constraint. Told as failed, TPE would never
  hear of it and propose diverging settings for ever.
* Extra points of a range (``also: [0]``) are a categorical switch; the range itself is modelled from the trials in it.
* Choices among numbers are modelled by their rank, others as categories; ``complement`` models log(1 - x).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from search_spaces.parameters import Choice, Float, Parameter, Space
from search_spaces.spaces import free
from search_spaces.values import is_real, same
from service.samplers import quasi_random
from service.samplers.protocol import Setting

if TYPE_CHECKING:
    import optuna

STARTUP = 10
_RANGE = "range"


class Sampler:
    """Proposals by TPE. See `service.samplers.protocol` for the arguments."""

    def __init__(self, space: Space, objectives: Sequence[str], seed: int) -> None:
        self._space = {name: space[name] for name in sorted(space)}
        self._free = free(space)
        self._objectives = tuple(objectives)
        self._seed = seed
        self._start = quasi_random.Sampler(space, objectives, seed)
        self._startup = max(STARTUP, len(self._free) + 2)
        self._pending: dict[int, Setting] = {}
        self._finished: dict[int, tuple[Setting, tuple[float, ...] | None]] = {}  # None: diverged

    def ask(self, number: int) -> Setting:
        """A setting for trial `number`, given what has been heard; pending from now on."""
        early = number < self._startup or len(self._finished) < self._startup
        setting = self._start.ask(number) if early or not self._free else self._propose(number)
        self._pending[number] = setting
        return dict(setting)

    def pending(self, number: int, setting: Mapping[str, Any]) -> None:
        """Trial `number` has been proposed and is not finished."""
        self._pending[number] = dict(setting)

    def tell(
        self, number: int, setting: Mapping[str, Any], values: Mapping[str, float] | None, diverged: bool = False
    ) -> None:
        """How trial `number` went; see the protocol."""
        self._pending.pop(number, None)
        if diverged:
            self._finished[number] = (dict(setting), None)
        elif values is not None:
            self._finished[number] = (dict(setting), tuple(float(values[name]) for name in self._objectives))

    def _propose(self, number: int) -> Setting:
        import optuna

        sampler = optuna.samplers.TPESampler(
            seed=int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0]),
            n_startup_trials=0,
            constant_liar=True,
        )
        with _quiet(optuna):
            study = optuna.create_study(directions=["maximize"] * len(self._objectives), sampler=sampler)
            study.add_trials(self._history(optuna))
            trial = study.ask()
            return {name: _suggest(trial, name, parameter) for name, parameter in self._space.items()}

    def _history(self, optuna: Any) -> list[Any]:
        """What has been heard, as Optuna's trials in the order of their numbers."""
        told = [values for _, values in self._finished.values() if values is not None]
        worst = [min(column) for column in zip(*told, strict=True)] or [0.0] * len(self._objectives)
        trials = []
        for number in sorted(self._finished.keys() | self._pending.keys()):
            finished = self._finished.get(number)
            params, distributions = self._encode(optuna, finished[0] if finished else self._pending[number])
            facts: dict[str, Any] = {"state": optuna.trial.TrialState.RUNNING}
            if finished:
                values = finished[1]
                facts = {
                    "values": list(worst if values is None else values),
                    "constraints": {"diverged": 1.0 if values is None else 0.0},
                }
            trials.append(optuna.trial.create_trial(params=params, distributions=distributions, **facts))
        return trials

    def _encode(self, optuna: Any, setting: Setting) -> tuple[dict[str, Any], dict[str, Any]]:
        """A setting as Optuna's parameters and their distributions."""
        params: dict[str, Any] = {}
        distributions: dict[str, Any] = {}
        for name in self._free:
            for key, distribution, value in _coordinates(optuna, name, self._space[name], setting[name]):
                params[key], distributions[key] = value, distribution
        return params, distributions


def _suggest(trial: optuna.Trial, name: str, parameter: Parameter) -> Any:
    """The value of one hyperparameter that Optuna's trial proposes."""
    if isinstance(parameter, Choice):
        options = parameter.options
        if len(options) == 1:
            return options[0]
        if _ranked(parameter):
            return sorted(options)[trial.suggest_int(name, 0, len(options) - 1)]
        return options[trial.suggest_categorical(name, list(range(len(options))))]
    if parameter.also:
        switch = trial.suggest_categorical(f"{name}?", _switch(parameter))
        if switch != _RANGE:
            return parameter.also[int(switch)]
    if not isinstance(parameter, Float):
        return trial.suggest_int(name, parameter.low, parameter.high, log=parameter.log)
    if parameter.complement:
        value = 1 - trial.suggest_float(name, 1 - parameter.high, 1 - parameter.low, log=True)
        return min(max(value, parameter.low), parameter.high)
    return trial.suggest_float(name, parameter.low, parameter.high, log=parameter.log)


def _coordinates(optuna: Any, name: str, parameter: Parameter, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """(key, distribution, value) of each of Optuna's parameters behind one hyperparameter: `_suggest` backwards."""
    kinds = optuna.distributions
    if isinstance(parameter, Choice):
        count = len(parameter.options)
        if _ranked(parameter):
            yield name, kinds.IntDistribution(0, count - 1), sorted(parameter.options).index(value)
        else:
            index = next(index for index, option in enumerate(parameter.options) if same(option, value))
            yield name, kinds.CategoricalDistribution(list(range(count))), index
        return
    if parameter.also:
        extra = value in parameter.also
        switch = str(parameter.also.index(value)) if extra else _RANGE
        yield f"{name}?", kinds.CategoricalDistribution(_switch(parameter)), switch
        if extra:
            return
    low, high = parameter.low, parameter.high
    if not isinstance(parameter, Float):
        yield name, kinds.IntDistribution(low, high, log=parameter.log), int(value)
    elif parameter.complement:
        yield name, kinds.FloatDistribution(1 - high, 1 - low, log=True), min(max(1 - value, 1 - high), 1 - low)
    else:
        yield name, kinds.FloatDistribution(low, high, log=parameter.log), float(value)


def _switch(parameter: Any) -> list[str]:
    return [_RANGE, *(str(index) for index in range(len(parameter.also)))]


def _ranked(parameter: Choice) -> bool:
    """Whether the options have a natural order: more than two, all numbers."""
    return len(parameter.options) > 2 and all(is_real(option) for option in parameter.options)


@contextlib.contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Without Optuna's lines about every study that is created, and about conditional parameters."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
