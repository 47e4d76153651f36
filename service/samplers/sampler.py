"""The contract of samplers, which propose configurations and learn from the results.

A sampler keeps no state of its own: it is rebuilt from the store's rows (`pending` and `tell`, in any order) and then
proposes what it would have proposed without the interruption. A proposal is a function of (space, seed, number, all
that was told); for random, grid and quasi_random, of (space, seed, number) alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from search_spaces.parameters import Space
from trainers import Hyperparameter

Hyperparameters = dict[str, Any]


class Sampler(Protocol):
    """Proposes configurations for one label.

    Args:
        space: Parameters by dotted name; their order makes no difference.
        objectives: Names of the values to maximise: ("quality", "speed"), or one of them.
        seed: Seed of all its random draws.
    """

    def __init__(self, space: Space, objectives: Sequence[str], seed: int) -> None: ...

    @abstractmethod
    def ask(self, number: int) -> Hyperparameters:
        """A configuration inside the space for trial `number`, which is pending until `tell`."""
        ...

    @abstractmethod
    def pending(self, number: int, hyperparameters: Mapping[str, Any]) -> None:
        """Trial `number` has been proposed and is not finished."""
        ...

    @abstractmethod
    def tell(
        self,
        number: int,
        hyperparameters: Mapping[str, Any],
        values: Mapping[str, float] | None,
        diverged: bool = False,
    ) -> None:
        """Takes the result of trial `number`.

        Args:
            number: Its number within the label's search.
            hyperparameters: The trial's hyperparameters.
            values: The value of each objective, larger is better; None if the trial has none.
            diverged: Whether the trial diverged. Without values and not diverged it has failed, and is ignored.
        """
        ...


class LearnsNothing:
    """Base of samplers that do not learn: ignores results."""

    def pending(self, number: int, hyperparameters: Mapping[str, Any]) -> None:
        """Does nothing."""

    def tell(
        self,
        number: int,
        hyperparameters: Mapping[str, Any],
        values: Mapping[str, float] | None,
        diverged: bool = False,
    ) -> None:
        """Does nothing."""


class PassesOn:
    """Base of samplers around another one: passes results on.

    Args:
        inner: The sampler that proposes.
    """

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner

    def pending(self, number: int, hyperparameters: Mapping[str, Any]) -> None:
        """Trial `number` has been proposed and is not finished."""
        self._inner.pending(number, hyperparameters)

    def tell(
        self,
        number: int,
        hyperparameters: Mapping[str, Any],
        values: Mapping[str, float] | None,
        diverged: bool = False,
    ) -> None:
        """Takes the result of trial `number`."""
        self._inner.tell(number, hyperparameters, values, diverged)


class SamplerModule(Protocol):
    """A module in service/samplers, or one that an entry point names.

    Attributes:
        Sampler: Its class; settings are passed by keyword.
        SETTINGS: Settings of an entry point's sampler; those of the samplers here are in `driftline.study.sampler`.
        LEARNS: Whether proposals of an entry point's sampler depend on results; if not, they do not wait for results.
    """

    Sampler: type[Sampler]
    SETTINGS: tuple[Hyperparameter, ...] = ()
    LEARNS: bool = True
