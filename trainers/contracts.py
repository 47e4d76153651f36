"""The contracts of methods, optimizers and schedules: what a plug-in must define, and defaults of what it may define.

That of optimizers is in `optimizer_contract`, because engine.rounds uses it, whose types the contract of methods names.
Contracts of other kinds are in `problem.Task`, `engine.oracles.oracle.ModelBuilder` and
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
    """What a client computes in a round, in gradients on mini-batches; a Hessian product counts as two.

    It is known before training, so that budgets may be in gradients and examples (trial/spend.py).

    Args:
        per_step: gradients in each local step, on the client's batch of this step.
        central_per_step: gradients in each local step on a batch of the server.
        batches: further gradients, on a first batch of the round.
        passes: further gradients on all data of the client, each of which counts as the mini-batches of a pass.
        once: gradients on a mini-batch in the first round only.
    """

    per_step: int = 0
    central_per_step: int = 0
    batches: int = 0
    passes: int = 0
    once: int = 0

    def and_at(self, source: str, count: int = 1) -> RoundGradients:
        """These, and further gradients on all data of the client ("full") or on a mini-batch ("batch")."""
        if source == "full":
            return replace(self, passes=self.passes + count)
        return replace(self, batches=self.batches + count)


@runtime_checkable
class Method(Configured, Protocol):
    """A module in trainers/methods. `Hyper` and `train_round` are required; the rest is optional, with these defaults.

    Attributes:
        ROLES: role -> optimizers that it takes there: "any", "linear", or "none: REASON". Every method has a server.
        TIED: server_lr follows client_lr and is not a hyperparameter.
        CENTRAL: it also trains on data of the server.
        CLIENTS_PER_ROUND: the only size of a cohort that it supports; None supports any.
        PSEUDO_GRADIENT: what a client returns: the "sum" of the gradients along its local steps, or the "last" one;
            `space: theory` derives rates from it, and has none for None.
        ONE_UPLOAD: a client returns one model-sized tensor a round, so that it may be quantised (`upload`); what the
            client keeps of it is what the server receives.
        PARTIAL_WORK: its clients may take different parts of their local steps (`stragglers`), all in `cohort.local`.
        FRAGMENTS: what a client returns is the sum of its directions from the broadcast model, along whose mean the
            server's optimizer steps, and nothing else: so that rounds may exchange `fragments` of the model in turn.
        resolve: (values, problem, batch_size) -> the values, including those that follow from the task's data;
            `problem()` builds the problem, and batch_size None is all data of a client. None uses no data.
        INACTIVE: where its hyperparameters change nothing, a literal. One for client_lr holds where nothing else uses
            client_lr: rates stay as they are, and server_lr does not follow from it.
        round_gradients: what a client computes in a round, or values of a trial -> that; a method without it cannot
            have a budget in gradients, examples or tokens.
        round_batches: values of a trial, of which those with a default may be missing -> batches of a client in a
            round, after which `batching: epochs` goes on in the next one; by default local_steps, or 1 without.
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
        LOSS_DATA: data on which it sees the loss, unless the trial has `loss_data`.
        FOLLOWS: hyperparameters that default to the method's -> their defaults for methods without; a literal. Also
            `rounds`, which defaults to the trial's, and `rates`, to "client_lr", or "server_lr" for methods without it;
            other rates than the method's own are refused.
        RATES: what it makes of the method's client_lr and server_lr, a literal.
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
        default None is client_lr throughout, which saves a pass over the models in every step.

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
