"""The contracts of methods, optimizers and schedules: what a plug-in must define, and defaults of what it may define.

Contracts of other kinds are in `problem.Task`, `engine.oracles.oracle.ModelBuilder` and
`engine.evaluation.views.ReportModule`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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

Inactive = Mapping[str, tuple[Mapping[str, Any], ...]]
"""Hyperparameter -> conditions, each of them values of others, at which it changes no curve, to the bit."""


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
        resolve: (values, problem, batch_size) -> the values, including those that follow from the task's data;
            `problem()` builds the problem, and batch_size None is all data of a client. None uses no data.
        INACTIVE: where its hyperparameters change nothing, a literal. One for client_lr holds where nothing else uses
            client_lr: rates stay as they are, and server_lr does not follow from it.
        round_gradients: what a client computes in a round, or values of a trial -> that; a method without it cannot
            have a budget in gradients, examples or tokens.
    """

    ROLES: Mapping[str, str] = MappingProxyType({})
    TIED: bool = False
    CENTRAL: bool = False
    CLIENTS_PER_ROUND: int | None = None
    PSEUDO_GRADIENT: Literal["sum", "last"] | None = None
    ONE_UPLOAD: bool = False
    resolve: Callable[[Values, Callable[[], Problem], int | None], Values] | None = None
    INACTIVE: Inactive = MappingProxyType({})
    round_gradients: RoundGradients | Callable[[Mapping[str, Any]], RoundGradients] | None = None

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


@runtime_checkable
class Optimizer(Configured, Protocol):
    """A module in trainers/optimizers. Attributes with a value here are optional and have that default.

    Attributes:
        Hyper: its settings, with the defaults for the server.
        DEFAULTS: role -> setting -> default, if it differs from that for the server.
        SPACES: role -> setting -> range, if it differs from that in SPACE; a literal too.
        ABSENT: role -> settings that it does not have in that role.
        REFUSED: role -> why it cannot serve in that role.
        LINEAR: its directions are linear in the gradients.
        DECOUPLED: weight decay is added to the directions, not to the gradients. On clients it is the method's
            weight_decay, in the other roles its own setting of this name.
        INACTIVE: where its settings change nothing, a literal. In a condition `local_steps` is the number of steps that
            a client takes in a round, each time with new memory; such a condition does not hold in other roles, or
            if clients keep their memory.
        CLOSED_FORM: its rates on quadratics, in `trainers.theory.rates`; None has none.
        descend_: (hyper, memory, gradient, step, models, rate) moves models (T, M, P) by -rate times the direction of
            `direction_`, in fewer passes over memory. Clients on a CPU use it if all trials have the same settings:
            `hyper` then has traced fields (1, 1, 1), and step and rate are numbers.
        accumulator_: (hyper, memory) prepares and returns a tensor of the memory to which a gradient is added in place;
            `descend_` then gets this tensor as its gradient. Without it a gradient has a tensor of its own.
        averaged: (hyper, memory, rate) -> (T, 1, P), evaluated models minus those that the server steps from and sends;
            an optimizer with it needs a constant rate. None evaluates the models that are sent.
        matrix_direction_: (hyper, memory, gradient, step, matrices) replaces `direction_` for a model with hidden
            matrices: a list of (slice of the parameters, number of rows).
    """

    DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    SPACES: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    ABSENT: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    REFUSED: Mapping[str, str] = MappingProxyType({})
    LINEAR: bool = False
    DECOUPLED: bool = False
    INACTIVE: Inactive = MappingProxyType({})
    CLOSED_FORM: Literal["heavy_ball", "nesterov"] | None = None
    descend_: Callable[[Any, dict[str, Any], Any, int, Any, float], None] | None = None
    accumulator_: Callable[[Any, dict[str, Any]], Any] | None = None
    averaged: Callable[[Any, Mapping[str, Any], Any], Any] | None = None
    matrix_direction_: Callable[[Any, dict[str, Any], Any, Any, Any], Any] | None = None

    @abstractmethod
    def init(self, hyper: Any, like: Tensor) -> dict[str, Tensor]:
        """The memory before the first step, with the shape and layout of `like`, (T, M, P).

        Directions must be 0 in the padding, where all gradients are 0.

        Args:
            hyper: traced fields (T, 1, 1).
            like: (T, M, P).
        """

    @abstractmethod
    def direction_(self, hyper: Any, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
        """The direction of one step, (T, M, P). Changes the memory in place, and may change the gradient.

        The direction may be a tensor of the memory or the gradient itself, so callers read it before the next step. It
        must be 0 where all gradients so far were 0.

        Args:
            hyper: traced fields (T, 1, 1).
            memory: from `init`.
            gradient: (T, M, P).
            step: from 0; a number, or (T, 1, 1) or (T, M, 1) integers.
        """


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
