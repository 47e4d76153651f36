"""What a sampler is: something that proposes configurations, and hears how they went.

A sampler holds no truth of its own: it is rebuilt from the store's rows (`pending` and `tell`, in any order) and then
proposes what it would have proposed without the interruption. A proposal is a function of (space, seed, number, what
has been heard); of random, grid and quasi_random one of (space, seed, number) alone.
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
        space: What may be tried, by dotted name; the order of its names makes no difference.
        objectives: Names of the values to maximise: ("quality", "speed"), or one of them.
        seed: Of all its draws.
    """

    def __init__(self, space: Space, objectives: Sequence[str], seed: int) -> None: ...

    @abstractmethod
    def ask(self, number: int) -> Hyperparameters:
        """A configuration for trial `number`, inside the space; counted as pending until it is told of."""
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
        """How trial `number` went.

        Args:
            number: Its number within the label's search.
            hyperparameters: Of the trial.
            values: Each objective's value, larger is better; None when it has none.
            diverged: It left the finite numbers. Without values and not diverged it failed: it is forgotten.
        """
        ...


class SamplerModule(Protocol):
    """A module in service/samplers, or one that an entry point names.

    Attributes:
        Sampler: Its class; configurations follow by keyword.
        SETTINGS: What a study may set of an entry point; `driftline.study.sampler` has those of the samplers here.
    """

    Sampler: type[Sampler]
    SETTINGS: tuple[Hyperparameter, ...] = ()
