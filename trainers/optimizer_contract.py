"""The contract of optimizers: what a module in trainers/optimizers must define, and what it may, with defaults."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from trainers.plugins import Configured

if TYPE_CHECKING:
    from torch import Tensor

Inactive = Mapping[str, tuple[Mapping[str, Any], ...]]
"""Hyperparameter -> conditions (values of other hyperparameters) under which it changes no bit of any curve."""


@runtime_checkable
class Optimizer(Configured, Protocol):
    """A module in trainers/optimizers. Attributes with a value here are optional and have that default.

    Attributes:
        Hyper: its settings, with the defaults for the server.
        DEFAULTS: role -> setting -> default, if it differs from that for the server.
        SPACES: role -> setting -> range, if it differs from that in SPACE; a literal too.
        ABSENT: role -> settings that the optimizer does not have in that role.
        REFUSED: role -> why the optimizer cannot serve in that role.
        LINEAR: its directions are linear in the gradients.
        DECOUPLED: weight decay is added to the directions, not to the gradients. On clients it is the method's
            weight_decay, in the other roles its own setting of this name.
        INACTIVE: conditions under which settings change nothing, a literal. In a condition `local_steps` is the number
            of steps that a client takes in a round, each time with new memory; such a condition does not hold in other
            roles, or if clients keep their memory.
        CLOSED_FORM: name of its closed-form rates on quadratics in `trainers.theory.rates`; None: there are none.
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
