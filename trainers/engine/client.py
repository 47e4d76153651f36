"""How clients step: client optimizers by name, and what every method with a local loop offers of them.

A method's Hyper inherits `ClientSteps` and hands `hyper.optimizer()` and `hyper.clip_norm` to its LocalWork. What a
client optimizer remembers begins afresh in every round and for every client: nothing of it is sent or stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor

from trainers.errors import SpecError
from trainers.hyper import describe, hyper
from trainers.registry import client_optimizers

SGD = "sgd"


class ClientOptimizer(Protocol):
    """How the models of the clients move, given their gradients; shapes (T, M, P).

    A client's model is y = start - client_lr U, where U is what the loop calls its total: the sum of the directions
    so far. The loop never divides by client_lr.
    """

    @property
    def returned(self) -> tuple[str, ...]:
        """Names of what it remembers that the local loop gives back, as it is at each client's last step."""
        ...

    @property
    def decoupled(self) -> bool:
        """Whether weight_decay is added to the directions and is no part of the gradients."""
        ...

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """What it remembers before the first step of a round, (T, M, P) each, laid out as `like`."""
        ...

    def step_(self, total: Tensor, memory: dict[str, Tensor], gradient: Tensor, step: int) -> None:
        """Moves the totals one step on; changes total and memory in place, and may the gradient.

        Args:
            total: (width, busy, P), U.
            memory: (width, busy, P) each.
            gradient: (width, busy, P).
            step: from 0.
        """
        ...

    def rows(self, rows: slice) -> ClientOptimizer:
        """The same for some of the trials."""
        ...


@dataclass(frozen=True)
class Directions:
    """A module in trainers/client: the total moves by the direction of each step.

    Args:
        module: with init and direction_.
        hyper: its Hyper, traced fields (T, 1, 1).
    """

    module: ModuleType
    hyper: Any

    @property
    def returned(self) -> tuple[str, ...]:
        """See ClientOptimizer; nothing."""
        return ()

    @property
    def decoupled(self) -> bool:
        """See ClientOptimizer."""
        return bool(getattr(self.module, "DECOUPLED", False))

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """See ClientOptimizer."""
        memory: dict[str, Tensor] = self.module.init(self.hyper, like)
        return memory

    def step_(self, total: Tensor, memory: dict[str, Tensor], gradient: Tensor, step: int) -> None:
        """See ClientOptimizer."""
        total.add_(self.module.direction_(self.hyper, memory, gradient, step))

    def rows(self, rows: slice) -> Directions:
        """See ClientOptimizer."""
        return replace(self, hyper=rows_of(self.hyper, rows))


def rows_of(held: Any, rows: slice) -> Any:
    """A dataclass with some rows of every tensor in it.

    Args:
        held: a dataclass.
        rows: of the trials.
    """
    values = {field.name: getattr(held, field.name) for field in fields(held)}
    return replace(held, **{name: value[rows] for name, value in values.items() if isinstance(value, Tensor)})


@dataclass(frozen=True)
class Clipped:
    """What every method with local gradients offers."""

    clip_norm: Tensor | None = hyper(
        None,
        kind="float",
        low=0,
        low_open=True,
        none_is=math.inf,
        unit="norm of a gradient",
        limit="null is no clipping",
        doc="largest L2 norm of a local gradient, after any correction",
    )


@dataclass(frozen=True)
class ClientSteps(Clipped):
    """What every method with a local loop offers; a setting that the client optimizer does not have is refused."""

    client_optimizer: str = hyper(
        SGD, choices=tuple(client_optimizers()), traced=False, doc="turns local gradients into local steps"
    )
    client_momentum: Tensor | None = hyper(
        None, kind="float", low=0, high=1, high_open=True, limit="0 is sgd", doc="of momentum and nesterov; null is 0.9"
    )
    client_beta1: Tensor | None = hyper(
        None, kind="float", low=0, high=1, high_open=True, doc="of adam and adamw; null is 0.9"
    )
    client_beta2: Tensor | None = hyper(
        None, kind="float", low=0, high=1, high_open=True, doc="of adam and adamw (null is 0.999), rmsprop (0.99)"
    )
    client_epsilon: Tensor | None = hyper(
        None, kind="float", low=0, low_open=True, doc="of adam, adamw, rmsprop (null is 1e-8) and adagrad (1e-10)"
    )

    @property
    def decay_apart(self) -> bool:
        """Whether weight_decay is beside the gradients and no part of them, as adamw has it."""
        chosen = self.optimizer()
        return chosen is not None and chosen.decoupled

    def optimizer(self) -> ClientOptimizer | None:
        """The client optimizer; None is gradient descent, which the local loop does by itself."""
        if self.client_optimizer == SGD:
            return None
        module = client_optimizers()[self.client_optimizer]
        return Directions(module, module.Hyper(**{name: getattr(self, name) for name in _settings(module)}))


_NAMES = tuple(field.name for field in fields(ClientSteps) if field.name.startswith("client_"))[1:]


def complete(values: dict[str, Any], paths: Mapping[str, str]) -> dict[str, Any]:
    """One trial's values with the settings of its client optimizer filled in.

    Args:
        values: hyperparameters of a method, checked one by one.
        paths: dotted places of those that were given.

    Raises:
        SpecError: a setting that the client optimizer does not have, or one outside its own range.
    """
    if "client_optimizer" not in values:
        return values
    name = values["client_optimizer"]
    own = {item.name: item for item in describe(client_optimizers()[name].Hyper)}
    filled = dict(values)
    for key in _NAMES:
        if key in own and values[key] is None and own[key].default is not MISSING:
            filled[key] = own[key].default
        elif key in own:
            filled[key] = own[key].check(values[key], paths.get(key, key))
        elif values[key] is not None:
            path = paths.get(key, key)
            has = ", ".join(other for other, module in client_optimizers().items() if key in _settings(module))
            raise SpecError(f"{path} must be left out for client_optimizer {name}: it is a setting of {has}", path)
    return filled


def _settings(module: ModuleType) -> tuple[str, ...]:
    return tuple(item.name for item in describe(module.Hyper))


def clipped_(gradient: Tensor, clip_norm: Tensor) -> Tensor:
    """Gradients scaled down, in place, to a largest L2 norm.

    Args:
        gradient: (T, M, P).
        clip_norm: (T, 1, 1) above 0; inf is no clipping.
    """
    norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    return gradient.mul_((clip_norm / norm).clamp_(max=1))
