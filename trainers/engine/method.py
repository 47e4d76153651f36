"""The contract of a method: what clients and server do in one round."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from trainers.plugins import Configured
from trainers.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.engine.cohort import Cohort
    from trainers.engine.state import State

Values = Mapping[str, tuple[Any, ...]]
"""Hyperparameter -> one value for each member of a pack."""


@runtime_checkable
class Method(Configured, Protocol):
    """A module in trainers/methods. `Hyper` and `round` must be there; the rest is optional, with these defaults.

    Attributes:
        ROLES: role -> optimizers that it takes there: "any", "linear", or "none: REASON". Every method has a server.
        TIED: server_lr follows client_lr and is no hyperparameter.
        CENTRAL: it trains on data of the server, too.
        CLIENTS_PER_ROUND: the only size of a cohort that it works with; None works with any.
        WEIGHTING: of the clients, unless the trial says otherwise.
        resolve: (values, problem, batch_size) -> the values with what follows from the task's data; `problem()` builds
            it, batch_size None is all data of a client. None takes nothing from the data.
    """

    ROLES: Mapping[str, str] = MappingProxyType({})
    TIED: bool = False
    CENTRAL: bool = False
    CLIENTS_PER_ROUND: int | None = None
    WEIGHTING: Literal["uniform", "examples"] = "uniform"
    resolve: Callable[[Values, Callable[[], Problem], int | None], Values] | None = None

    @abstractmethod
    def round(self, hyper: Any, state: State, cohort: Cohort) -> State:
        """The state after one round; changes no tensor that came in.

        Args:
            hyper: the module's Hyper, traced fields (T, 1, 1).
            state: before the round.
            cohort: the clients of the round.
        """

    def init(self, hyper: Any, params: Tensor) -> dict[str, Tensor]:
        """What the server remembers before the first round, by name.

        Args:
            hyper: traced fields (T, 1, 1).
            params: (T, 1, P), the first models.
        """
        return {}

    def stored(self, hyper: Any) -> tuple[str, ...]:
        """Names of what every client keeps from round to round.

        Args:
            hyper: traced fields (T, 1, 1).
        """
        return ()
