"""The state of a pack between rounds: models, the memory of the server's optimizers and the method's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from trainers.engine.rounds.role_optimizer import RoleOptimizer

Memory = Mapping[str, Tensor]


@dataclass(frozen=True)
class State:
    """What goes from round to round.

    Args:
        params: (T, 1, P), the models that are broadcast.
        optimizers: role -> optimizer.
        optimizer_memory: role -> what its optimizer remembers; nothing of clients, which begin afresh.
        server_lr: (T, 1, 1), of the round.
        memory: what the method remembers, (T, ...) tensors; empty for most methods.
        update_norm: (T,) norm of the last pseudo-gradient that was stepped along; None before.
        stored: what the clients of the round keep from now on, (T, M, P) each; the pack writes it into its store.
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
            pseudo_gradient: (T, 1, P), the mean over the cohort.
        """
        held = self.optimizer_memory["server"]
        params, held = self.optimizers["server"].step(held, self.params, pseudo_gradient, self.server_lr)
        norm = pseudo_gradient[:, 0].norm(dim=-1)
        return replace(self.keep("server", held), params=params, update_norm=norm)

    def keep(self, role: str, memory: Memory) -> State:
        """The state with what the optimizer of a role remembers replaced.

        Args:
            role: "server", "central" or "merge".
            memory: from its step.
        """
        return replace(self, optimizer_memory={**self.optimizer_memory, role: memory})

    def remember(self, **memory: Tensor) -> State:
        """The state with the method's own tensors replaced.

        Args:
            memory: name -> (T, ...).
        """
        return replace(self, memory={**self.memory, **memory})

    def store(self, **stored: Tensor) -> State:
        """The state with what the clients of the round keep; what a client does not get here stays as it was.

        Args:
            stored: name -> (T, M, P), names from the method's `stored`.
        """
        return replace(self, stored={**self.stored, **stored})
