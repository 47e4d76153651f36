"""The state of a pack between rounds: models, memory of the optimizers, and memory of the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from trainers.engine.rounds.role_optimizer import RoleOptimizer

Memory = Mapping[str, Tensor]


@dataclass(frozen=True)
class State:
    """The state that one round passes to the next.

    Args:
        params: (T, 1, P) broadcast models.
        optimizers: role -> optimizer.
        optimizer_memory: role -> memory of its optimizer. Client optimizers have none here: they start anew every
            round, or each client keeps its own (engine/rounds/client_memory.py).
        server_lr: (T, 1, 1) rate of the round.
        memory: memory of the method, (T, ...) tensors; empty for most methods.
        update_norm: (T,) norm of the pseudo-gradient of the last server step; None before the first one.
        stored: new memory of the round's clients by dotted name, (T, M, P) or (T, M, 1); the pack writes it back.
    """

    params: Tensor
    optimizers: Mapping[str, RoleOptimizer]
    optimizer_memory: Mapping[str, Memory]
    server_lr: Tensor
    memory: dict[str, Tensor] = field(default_factory=dict)
    update_norm: Tensor | None = None
    stored: Memory = field(default_factory=dict)

    def step(self, pseudo_gradient: Tensor) -> State:
        """The state after the server optimizer's step.

        Args:
            pseudo_gradient: (T, 1, P) mean over the cohort.
        """
        server = self.optimizer_memory["server"]
        params, server = self.optimizers["server"].step(server, self.params, pseudo_gradient, self.server_lr)
        memory = {**self.optimizer_memory, "server": server}
        norm = torch.linalg.vector_norm(pseudo_gradient[:, 0], dim=-1)
        return replace(self, params=params, optimizer_memory=memory, update_norm=norm)

    @property
    def evaluated(self) -> Tensor:
        """(T, 1, P) the models that evaluations see: those broadcast, unless the server's optimizer averages them."""
        return self.optimizers["server"].evaluated(self.optimizer_memory["server"], self.params, self.server_lr)

    def keep(self, role: str, memory: Memory) -> State:
        """The state with a new memory of one role's optimizer.

        Args:
            role: "central" or "merge".
            memory: memory from the optimizer's step.
        """
        return replace(self, optimizer_memory={**self.optimizer_memory, role: memory})

    def remember(self, **memory: Tensor) -> State:
        """The state with new tensors in the method's memory.

        Args:
            memory: name -> (T, ...).
        """
        return replace(self, memory={**self.memory, **memory})

    def store(self, **stored: Tensor) -> State:
        """The state with new memory for the round's clients; the memory of other clients does not change.

        Args:
            stored: name -> (T, M, P), with names from the method's `stored`, or dotted ones of its clients' optimizer.
        """
        return replace(self, stored={**self.stored, **stored})
