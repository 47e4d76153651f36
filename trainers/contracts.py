"""The contracts of methods, optimizers and schedules: what a plug-in must define, and the defaults of what it may.

Those of other kinds stand beside what they deal with: `problem.Task`, `engine.oracles.oracle.ModelBuilder`,
`engine.evaluation.views.Report`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from trainers.plugins import Configured
from trainers.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.engine.rounds.cohort import Cohort
    from trainers.engine.rounds.server_state import State

Values = Mapping[str, tuple[Any, ...]]
"""Hyperparameter -> one value for each member of a pack."""


@runtime_checkable
class Method(Configured, Protocol):
    """A module in trainers/methods. `Hyper` and `train_round` must be there; the rest is optional, with these defaults.

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
    def train_round(self, hyper: Any, state: State, cohort: Cohort) -> State:
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


@runtime_checkable
class Optimizer(Configured, Protocol):
    """A module in trainers/optimizers. What has a value here is optional in a module, with this default.

    Attributes:
        Hyper: its settings, with the defaults of the server.
        DEFAULTS: role -> setting -> default, where that is another one.
        ABSENT: role -> settings that it does not have there.
        REFUSED: role -> why it cannot serve there.
        LINEAR: its directions are linear in the gradients.
        DECOUPLED: weight decay is added to the directions, not to the gradients.
    """

    DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    ABSENT: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    REFUSED: Mapping[str, str] = MappingProxyType({})
    LINEAR: bool = False
    DECOUPLED: bool = False

    @abstractmethod
    def init(self, hyper: Any, like: Tensor) -> dict[str, Tensor]:
        """The memory before the first step, shaped and laid out as `like`, (T, M, P); the padding must do no harm.

        Args:
            hyper: traced fields (T, 1, 1).
            like: (T, M, P).
        """

    @abstractmethod
    def direction_(self, hyper: Any, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
        """The direction of one step, (T, M, P); changes the memory in place, and may the gradient.

        The direction may be a tensor of the memory or the gradient itself: read it before the next step. It must be 0
        where all gradients were 0.

        Args:
            hyper: traced fields (T, 1, 1).
            memory: from `init`.
            gradient: (T, M, P).
            step: from 0; a number, or (T, 1, 1) integers.
        """


class Schedule(Configured, Protocol):
    """A module in trainers/schedules. What has a value or a body here is optional in a module, with this default.

    Attributes:
        LOSS_DATA: data on which train_loss is taken, unless the trial says otherwise.
        FOLLOWS: hyperparameter -> its value for methods that do not have it; left out, it is the method's own.
    """

    LOSS_DATA: Literal["full", "batches"]
    FOLLOWS: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def init(self, hyper: Any, client_lr: Tensor, server_lr: Tensor) -> dict[str, Tensor]:
        """The state before the first round, by name; every tensor begins with the trials.

        Args:
            hyper: the module's Hyper, traced fields (T,).
            client_lr: (T,) as the trials give it.
            server_lr: (T,) as the trials give it.
        """

    @abstractmethod
    def rates(self, state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(client_lr, server_lr) of the next round, (T,) each.

        Args:
            state: from `init` or `update`.
        """

    @abstractmethod
    def update(self, hyper: Any, state: dict[str, Tensor], monitored: Tensor) -> dict[str, Tensor]:
        """The state after a round; a trial's part of it does not depend on the other trials.

        Args:
            hyper: traced fields (T,).
            state: from `init` or `update`; not changed.
            monitored: (T,) loss or accuracy of the broadcast model in this round.
        """
