"""Everything that changes while a pack trains; exactly this is in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.rounds.client_states import ClientStore
from trainers.engine.rounds.counters import Counters
from trainers.engine.rounds.server_state import State


@dataclass
class Progress:
    """How far a pack has come. T trials, in the order of the slots.

    Args:
        state: models and memories.
        schedule: state of the schedule.
        counters: what has been used.
        alive: (T,), False from the round in which a trial has diverged.
        first_loss: (T,) training loss of the first round; NaN before.
        clients: what clients keep.
        round: server updates done.
        opened: whether the lines of round 0 have been given.
        wall_seconds: time spent in training.
    """

    state: State
    schedule: dict[str, Tensor]
    counters: Counters
    alive: NDArray[np.bool_]
    first_loss: NDArray[np.float64]
    clients: ClientStore
    round: int = 0
    opened: bool = False
    wall_seconds: float = 0.0

    @staticmethod
    def start(state: State, schedule: dict[str, Tensor], clients: ClientStore) -> Progress:
        """Nothing done yet.

        Args:
            state: with the first models.
            schedule: before the first round.
            clients: with nothing in it.
        """
        trials = state.params.shape[0]
        counters, alive = Counters.zero(trials), np.ones(trials, dtype=bool)
        return Progress(state, schedule, counters, alive, np.full(trials, np.nan), clients)

    def payload(self) -> dict[str, Any]:
        """Tensors and plain types, for a checkpoint."""
        return {
            "round": self.round,
            "opened": self.opened,
            "wall_seconds": self.wall_seconds,
            "params": self.state.params,
            "optimizers": {role: dict(held) for role, held in self.state.optimizer_memory.items()},
            "memory": self.state.memory,
            "clients": self.clients.payload(),
            "schedule": self.schedule,
            "alive": torch.from_numpy(self.alive.copy()),
            "first_loss": torch.from_numpy(self.first_loss.copy()),
            "counters": {name: torch.from_numpy(held.copy()) for name, held in self.counters.totals.items()},
        }

    def load(self, payload: Mapping[str, Any]) -> None:
        """Goes to where `payload` was taken.

        Args:
            payload: with tensors on the CPU.
        """
        device = self.state.params.device
        self.round, self.opened, self.wall_seconds = payload["round"], payload["opened"], payload["wall_seconds"]
        self.state = replace(
            self.state,
            params=payload["params"].to(device),
            optimizer_memory={
                role: {name: tensor.to(device) for name, tensor in held.items()}
                for role, held in payload["optimizers"].items()
            },
            memory={name: held.to(device) for name, held in payload["memory"].items()},
        )
        if "clients" in payload:  # not in checkpoints from before clients kept anything
            self.clients.load(payload["clients"])
        self.schedule = payload["schedule"]
        self.alive = payload["alive"].numpy()
        self.first_loss = payload["first_loss"].numpy()
        kept = {name: held.numpy() for name, held in payload["counters"].items()}
        self.counters = Counters.of(kept, len(self.alive))

    def exploded(self, loss: NDArray[np.float64], rest: NDArray[np.float64], explosion: float) -> NDArray[np.bool_]:
        """(T,) trials that diverge in this round.

        Args:
            loss: (T,) training loss of the round.
            rest: (T,) not finite where the update or the model is not.
            explosion: see Model.
        """
        self.first_loss = np.where(np.isnan(self.first_loss), loss, self.first_loss)
        with np.errstate(invalid="ignore", over="ignore"):
            allowed = self.first_loss + explosion * np.maximum(1.0, np.abs(self.first_loss))
            calm = np.isfinite(rest) & np.isfinite(loss) & (loss <= allowed)
        return self.alive & ~calm

    def move(
        self, state: State, schedule: dict[str, Tensor], alive: NDArray[np.bool_], cohort: NDArray[np.int64]
    ) -> None:
        """Goes one round on; trials that are not alive keep what they had.

        Args:
            state: after the round.
            schedule: after the round.
            alive: (T,) after the round.
            cohort: (M,) numbers of the round's clients.
        """
        self.clients.put(cohort, state.stored, alive)
        state = replace(state, stored={})
        if not alive.all():
            old = self.state
            params = _where(alive, {"params": state.params}, {"params": old.params})["params"]
            memory = _where(alive, state.memory, old.memory)
            optimizers = {
                role: _where(alive, held, old.optimizer_memory[role]) for role, held in state.optimizer_memory.items()
            }
            state = replace(state, params=params, optimizer_memory=optimizers, memory=memory)
            schedule = _where(alive, schedule, self.schedule)
        self.state, self.schedule, self.alive = state, schedule, alive
        self.round += 1


def _where(alive: NDArray[np.bool_], new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The new tensors, with the old rows of trials that are not alive."""
    rows = torch.as_tensor(alive)
    return {
        name: torch.where(rows.to(held.device).view(-1, *[1] * (held.dim() - 1)), held, old[name])
        for name, held in new.items()
    }
