"""Hyperparameters from Optuna's parameters (`suggest`), and back (`encode`).

* Extra points of a range (``also: [0]``) are a categorical switch beside the range. With ``fixed`` the range has a
  value even at an extra point, its end nearest to it. Every configuration then has the same coordinates, which genetic
  and Gaussian-process samplers need. Without ``fixed`` the range has no value there.
* Choices among more than two numbers are modelled by their rank, others as categories.
* ``complement`` models log(1 - x).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from search_spaces.parameters import Choice, Float, Int, Parameter
from search_spaces.values import is_real, same

if TYPE_CHECKING:
    import optuna

IN_RANGE = "range"
"""The switch's value for a value in the range instead of at one of its extra points."""


def suggest(trial: optuna.trial.BaseTrial, name: str, parameter: Parameter, *, fixed: bool) -> Any:
    """The value of one hyperparameter that Optuna's trial proposes.

    Args:
        trial: Optuna's trial.
        name: Name of the hyperparameter.
        parameter: Its range or choices.
        fixed: Whether every configuration has the same coordinates.
    """
    if isinstance(parameter, Choice):
        options = parameter.options
        if len(options) == 1:
            return options[0]
        if _ranked(parameter):
            return sorted(options)[trial.suggest_int(name, 0, len(options) - 1)]
        return options[trial.suggest_categorical(name, list(range(len(options))))]
    switch = trial.suggest_categorical(f"{name}?", _switch(parameter)) if parameter.also else IN_RANGE
    if switch != IN_RANGE and not fixed:
        return parameter.also[int(switch)]
    value = _in_range(trial, name, parameter)
    return value if switch == IN_RANGE else parameter.also[int(switch)]


def encode(name: str, parameter: Parameter, value: Any, *, fixed: bool) -> Iterator[tuple[str, Any, Any]]:
    """(key, distribution, value) of each of Optuna's parameters behind one hyperparameter; the inverse of `suggest`.

    Args:
        name: Name of the hyperparameter.
        parameter: Its range or choices; more than one value.
        value: Its value, which `parameter` allows.
        fixed: Whether every configuration has the same coordinates.
    """
    from optuna import distributions as kinds

    if isinstance(parameter, Choice):
        count = len(parameter.options)
        if _ranked(parameter):
            yield name, kinds.IntDistribution(0, count - 1), sorted(parameter.options).index(value)
        else:
            index = next(index for index, option in enumerate(parameter.options) if same(option, value))
            yield name, kinds.CategoricalDistribution(list(range(count))), index
        return
    low, high = parameter.low, parameter.high
    if parameter.also:
        extra = value in parameter.also
        switch = str(parameter.also.index(value)) if extra else IN_RANGE
        yield f"{name}?", kinds.CategoricalDistribution(_switch(parameter)), switch
        if extra and not fixed:
            return
        value = min(max(value, low), high)
    if not isinstance(parameter, Float):
        yield name, kinds.IntDistribution(parameter.low, parameter.high, log=parameter.log), int(value)
    elif parameter.complement:
        yield name, kinds.FloatDistribution(1 - high, 1 - low, log=True), min(max(1 - value, 1 - high), 1 - low)
    else:
        yield name, kinds.FloatDistribution(low, high, log=parameter.log), float(value)


def _in_range(trial: optuna.trial.BaseTrial, name: str, parameter: Float | Int) -> float | int:
    if not isinstance(parameter, Float):
        return trial.suggest_int(name, parameter.low, parameter.high, log=parameter.log)
    if parameter.complement:
        value = 1 - trial.suggest_float(name, 1 - parameter.high, 1 - parameter.low, log=True)
        return min(max(value, parameter.low), parameter.high)
    return trial.suggest_float(name, parameter.low, parameter.high, log=parameter.log)


def is_switch(key: str) -> bool:
    """Whether one of Optuna's parameters is a switch between a range and its extra points."""
    return key.endswith("?")


def _switch(parameter: Float | Int) -> list[str]:
    return [IN_RANGE, *(str(index) for index in range(len(parameter.also)))]


def _ranked(parameter: Choice) -> bool:
    """Whether the options have a natural order: more than two, all numbers."""
    return len(parameter.options) > 2 and all(is_real(option) for option in parameter.options)
