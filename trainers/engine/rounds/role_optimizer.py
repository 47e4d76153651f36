"""An optimizer of trainers/optimizers with its settings, in one of the roles of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from trainers.engine.local.client_optimizer import STEPS, rows_of
from trainers.engine.oracles.frame import subtract_
from trainers.engine.oracles.oracle import Matrices
from trainers.optimizer_contract import Optimizer


@dataclass(frozen=True)
class RoleOptimizer:
    """An optimizer and its settings; a ClientOptimizer for the local loop, and `step` for the other roles.

    Args:
        module: the optimizer.
        hyper: its settings, traced ones (T, 1, 1).
        matrices: the model's hidden matrices (engine/oracles/oracle.py), for an optimizer that treats them apart.
    """

    module: Optimizer
    hyper: Any
    matrices: Matrices = ()

    @property
    def returned(self) -> tuple[str, ...]:
        """No names: the local loop returns none of the memory."""
        return ()

    @property
    def decoupled(self) -> bool:
        """Whether weight decay is added to the directions."""
        return self.module.DECOUPLED

    @cached_property
    def plain(self) -> bool:
        """Whether all trials step along plain gradients: the optimizer has a setting momentum, 0 in all trials."""
        momentum = getattr(self.hyper, "momentum", None)
        return self.module.LINEAR and momentum is not None and not bool((momentum != 0).any())

    @property
    def moves_models(self) -> bool:
        """True: totals may be the models themselves."""
        return True

    @cached_property
    def shared(self) -> Any:
        """The settings as (1, 1, 1), for `descend_`; None if trials differ, on accelerators, or without `descend_`."""
        if self.module.descend_ is None:
            return None
        for value in vars(self.hyper).values():
            if isinstance(value, Tensor) and (value.device.type != "cpu" or not bool((value == value[:1]).all())):
                return None
        return rows_of(self.hyper, slice(1))

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """The memory before the first step of a round."""
        return self.module.init(self.hyper, like)

    def begin_(self, memory: dict[str, Tensor], start: Tensor, rate: float) -> None:
        """Does nothing, because the memory has no sums of directions."""

    def step_(
        self,
        total: Tensor,
        memory: dict[str, Tensor],
        gradient: Tensor,
        step: int | Tensor,
        rate: Tensor | float = -1.0,
    ) -> None:
        """Advances the totals by one step."""
        fused = self.module.descend_
        if isinstance(rate, Tensor) or isinstance(step, Tensor) or fused is None or self.shared is None:
            subtract_(total, self._direction_(memory, gradient, step), rate)
        else:
            fused(self.shared, memory, gradient, step, total, rate)

    def accumulator_(self, memory: dict[str, Tensor]) -> Tensor | None:
        """The tensor of the memory to which the step's gradient may be added, or None."""
        if self.shared is None or self.module.accumulator_ is None:
            return None
        prepared: Tensor = self.module.accumulator_(self.shared, memory)
        return prepared

    def _direction_(self, memory: dict[str, Tensor], gradient: Tensor, step: int | Tensor) -> Tensor:
        """The direction of a step; for hidden matrices by `matrix_direction_`, if the optimizer has it."""
        if self.matrices and self.module.matrix_direction_ is not None:
            direction: Tensor = self.module.matrix_direction_(self.hyper, memory, gradient, step, self.matrices)
            return direction
        return self.module.direction_(self.hyper, memory, gradient, step)

    def rows(self, rows: slice) -> RoleOptimizer:
        """This optimizer for some of the trials."""
        return replace(self, hyper=rows_of(self.hyper, rows))

    def begin(self, params: Tensor) -> dict[str, Tensor]:
        """The memory before a trial's first step, with the number of steps, for `step` or for clients that keep it.

        Args:
            params: (T, 1, P).
        """
        return {**self.init(params), STEPS: torch.zeros_like(params[..., :1], dtype=torch.int64)}

    def step(
        self, memory: Mapping[str, Tensor], params: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(models, memory) after a step; the arguments are not changed.

        Args:
            memory: from `begin` or `step`.
            params: (T, 1, P).
            gradient: (T, 1, P).
            rate: (T, 1, 1).
        """
        if self.plain:
            return params - rate * gradient, {}
        steps = memory[STEPS]
        tensors = {name: tensor.clone() for name, tensor in memory.items() if name != STEPS}
        direction = self._direction_(tensors, gradient.clone(), steps)
        if self.decoupled:
            direction = direction + self.hyper.weight_decay * params
        return params - rate * direction, {**tensors, STEPS: steps + 1}

    def evaluated(self, memory: Mapping[str, Tensor], params: Tensor, rate: Tensor) -> Tensor:
        """(T, 1, P) the models to evaluate, for models from `step` with the same rate."""
        if self.module.averaged is None:
            return params
        offset: Tensor = self.module.averaged(self.hyper, memory, rate)
        return params + offset


def first_memory(optimizers: Mapping[str, RoleOptimizer], params: Tensor) -> dict[str, dict[str, Tensor]]:
    """Role -> memory of its optimizer before the first round, for all roles but "client"; none for plain steps.

    Args:
        optimizers: optimizers by role.
        params: (T, 1, P) initial models.
    """
    lasting = {role: optimizer for role, optimizer in optimizers.items() if role != "client"}
    return {role: {} if optimizer.plain else optimizer.begin(params) for role, optimizer in lasting.items()}
