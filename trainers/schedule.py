"""The contract of a schedule: the rates of every round."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from trainers.plugins import Configured

if TYPE_CHECKING:
    from torch import Tensor


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
