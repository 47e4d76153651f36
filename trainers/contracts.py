"""The contracts of methods, optimizers and schedules: what a plug-in must define, and what it may, with defaults.

The contract of optimizers is in `optimizer_contract`, because engine.rounds imports it, and the contract of methods
names types of engine.rounds. Contracts of other kinds are in `problem.Task`, `engine.oracles.oracle.ModelBuilder` and
`engine.evaluation.views.ReportModule`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from trainers.optimizer_contract import Inactive, Optimizer
from trainers.plugins import Configured
from trainers.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

    from trainers.engine.rounds.cohort import Cohort
    from trainers.engine.rounds.server_state import State

__all__ = ["Inactive", "Method", "Optimizer", "RoundGradients", "Schedule", "Values"]

Values = Mapping[str, tuple[Any, ...]]
"""Hyperparameter -> one value for each member of a pack."""


@dataclass(frozen=True)
class RoundGradients:
    """What a client computes in a round, counted in mini-batch gradients; a Hessian-vector product counts as two.

    The counts are known before training, so that budgets may be in gradients and examples (trial/spend.py).

    Args:
        per_step: gradients in each local step, on the client's batch of the step.
        central_per_step: gradients in each local step on a batch of the server.
        batches: further gradients, on the client's first batch of the round.
        passes: further gradients on all data of the client, each of which counts as the mini-batches of a pass.
        once: gradients on a mini-batch in the first round only.
    """

    per_step: int = 0
    central_per_step: int = 0
    batches: int = 0
    passes: int = 0
    once: int = 0

    def and_at(self, source: str, count: int = 1) -> RoundGradients:
        """Adds `count` gradients on all data of the client ("full") or on a mini-batch ("batch")."""
        if source == "full":
            return replace(self, passes=self.passes + count)
        return replace(self, batches=self.batches + count)


@runtime_checkable
class Method(Configured, Protocol):
    """A module in trainers/methods. `Hyper` and `train_round` are required; the rest is optional, with these defaults.

    Attributes:
        ROLES: role -> optimizers allowed in it: "any", "linear", or "none: REASON". Every method has the role server.
        TIED: server_lr follows client_lr and is not a hyperparameter.
        CENTRAL: the method also trains on data of the server.
        CLIENTS_PER_ROUND: the only supported size of a cohort; None supports any.
        PSEUDO_GRADIENT: what a client returns: the "sum" of the gradients along its local steps, or the "last" one;
            `space: theory` derives rates from it, and refuses methods with None.
        ONE_UPLOAD: a client returns one model-sized tensor a round, so that `upload` may quantise it; a client state
            that follows from the tensor uses it as the server receives it.
        PARTIAL_WORK: clients may take different parts of their local steps (`stragglers`), all in `cohort.local`.
        FRAGMENTS: a client returns only the sum of its directions from the broadcast model, and the server's optimizer
            steps along the mean of these sums, so that rounds may exchange `fragments` of the model in turn.
        resolve: (values, problem, batch_size) -> the values, including those that follow from the task's data;
            `problem()` builds the problem, and batch_size None is all data of a client. None uses no data.
        INACTIVE: conditions under which hyperparameters change nothing, a literal. A condition for client_lr applies
            only where nothing else uses client_lr: with constant rates and a server_lr that does not follow from it.
        round_gradients: what a client computes in a round, or a function of a trial's values that returns it; a method
            without it cannot have a budget in gradients, examples or tokens.
        round_batches: a trial's values (those with a default may be missing) -> number of a client's batches in a
            round, after which `batching: epochs` continues in the next round; by default local_steps, else 1.
    """

    ROLES: Mapping[str, str] = MappingProxyType({})
    TIED: bool = False
    CENTRAL: bool = False
    CLIENTS_PER_ROUND: int | None = None
    PSEUDO_GRADIENT: Literal["sum", "last"] | None = None
    ONE_UPLOAD: bool = False
    PARTIAL_WORK: bool = False
    FRAGMENTS: bool = False
    resolve: Callable[[Values, Callable[[], Problem], int | None], Values] | None = None
    INACTIVE: Inactive = MappingProxyType({})
    round_gradients: RoundGradients | Callable[[Mapping[str, Any]], RoundGradients] | None = None
    round_batches: Callable[[Mapping[str, Any]], int] | None = None

    @abstractmethod
    def train_round(self, hyper: Any, state: State, cohort: Cohort) -> State:
        """The state after one round. Must not change any given tensor.

        Args:
            hyper: the module's Hyper, traced fields (T, 1, 1).
            state: state before the round.
            cohort: the clients of the round.
        """

    def init(self, hyper: Any, params: Tensor) -> dict[str, Tensor]:
        """The server's memory before the first round, by name.

        Args:
            hyper: traced fields (T, 1, 1).
            params: (T, 1, P) initial models.
        """
        return {}

    def stored(self, hyper: Any) -> tuple[str, ...]:
        """Names of the tensors that every client keeps from round to round (engine/rounds/client_memory.py).

        Args:
            hyper: traced fields (T, 1, 1).
        """
        return ()


class Schedule(Configured, Protocol):
    """A module in trainers/schedules. Attributes and functions with a value or body here are optional.

    Attributes:
        LOSS_DATA: data on which the monitored loss is computed, unless the trial has `loss_data`.
        FOLLOWS: hyperparameters that default to the method's -> their defaults if the method has none; a literal. Also
            `rounds`, which default to the trial's, and `rates`, by default "client_lr", or "server_lr" for methods
            without client_lr; rates that the method does not set itself are refused.
        RATES: whether the method's client_lr and server_lr are kept, changed or replaced; a literal.
    """

    LOSS_DATA: Literal["full", "batches"]
    FOLLOWS: Mapping[str, Any] = MappingProxyType({})
    RATES: Literal["kept", "changed", "replaced"] = "changed"

    @abstractmethod
    def init(self, hyper: Any, client_lr: Tensor, server_lr: Tensor) -> dict[str, Tensor]:
        """The state before the first round, by name; the first dimension of every tensor is T.

        Args:
            hyper: the module's Hyper, traced fields (T,).
            client_lr: (T,) values of the trials.
            server_lr: (T,) values of the trials.
        """

    @abstractmethod
    def rates(self, state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(client_lr, server_lr) of the next round, (T,) each.

        Args:
            state: from `init` or `update`.
        """

    def relative_rates(self, hyper: Any, state: dict[str, Tensor], steps: Tensor) -> Tensor | None:
        """(T, largest number of steps) float64 rates of the next round's local steps, divided by its client_lr.

        They must be at least 0, also after a trial's last step. A trial's row must not depend on the other trials. The
        default, None, keeps client_lr in all steps, which saves a pass over the models in every step.

        Args:
            hyper: traced fields (T,).
            state: from `init` or `update`.
            steps: (T,) integers, the local steps of each trial in this round; with local_epochs those of the client
                with the most examples.
        """
        return None

    @abstractmethod
    def update(self, hyper: Any, state: dict[str, Tensor], monitored: Tensor) -> dict[str, Tensor]:
        """The state after a round; the state of a trial must not depend on the other trials.

        Args:
            hyper: traced fields (T,).
            state: from `init` or `update`; not changed.
            monitored: (T,) loss or accuracy of the broadcast model in this round.
        """
