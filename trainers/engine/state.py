"""The state of a pack between rounds: models, the server optimizer's memory and the method's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from torch import Tensor

Memory = Mapping[str, Tensor]


class ServerOptimizer(Protocol):
    """A module in trainers/server."""

    Hyper: type

    def init(self, hyper: Any, params: Tensor) -> dict[str, Tensor]:
        """What it remembers before the first round."""
        ...

    def step(
        self, hyper: Any, state: dict[str, Tensor], params: Tensor, pseudo_gradient: Tensor, server_lr: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The next models and what it remembers."""
        ...


@dataclass(frozen=True)
class State:
    """What goes from round to round.

    Args:
        params: (T, 1, P), the models that are broadcast.
        server: what the server optimizer remembers.
        memory: what the method remembers, (T, ...) tensors; empty for most methods.
        optimizer: the server optimizer.
        hyper: its hyperparameters, traced ones (T, 1, 1).
        server_lr: (T, 1, 1), of the round.
        update_norm: (T,) norm of the last pseudo-gradient that was stepped along; None before.
        stored: what the clients of the round keep from now on, (T, M, P) each; the pack writes it into its store.
    """

    params: Tensor
    server: dict[str, Tensor]
    optimizer: ServerOptimizer
    hyper: Any
    server_lr: Tensor
    memory: dict[str, Tensor] = field(default_factory=dict)
    update_norm: Tensor | None = None
    stored: Memory = field(default_factory=dict)

    def step(self, pseudo_gradient: Tensor) -> State:
        """The state after the server optimizer's step.

        Args:
            pseudo_gradient: (T, 1, P), the mean over the cohort.
        """
        params, server = self.optimizer.step(self.hyper, self.server, self.params, pseudo_gradient, self.server_lr)
        norm = pseudo_gradient[:, 0].norm(dim=-1)
        return replace(self, params=params, server=server, update_norm=norm)

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
