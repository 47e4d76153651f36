"""Everything that changes while trials train. Checkpoints store it member by member."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.rounds.client_memory import ClientMemory
from trainers.engine.rounds.counters import Counters
from trainers.engine.rounds.server_state import State

SHARED_ROWS = ("params", "optimizers", "memory", "clients", "alive", "first_loss", "counters")
"""Contents of a member's checkpoint that are equal for members that have trained the same: all but the schedule."""


@dataclass
class Progress:
    """The progress of the trials of a lane, in T slots, of which the last ones may be idle.

    Args:
        state: models and memories.
        schedule: state of the schedule.
        counters: communication and computation so far.
        alive: (T,) False from the round in which a trial diverges, and for idle slots.
        first_loss: (T,) training loss of the first round; NaN before.
        clients: what the clients keep.
        members: number of slots that are not idle; these come first.
    """

    state: State
    schedule: dict[str, Tensor]
    counters: Counters
    alive: NDArray[np.bool_]
    first_loss: NDArray[np.float64]
    clients: ClientMemory
    members: int

    @staticmethod
    def start(
        state: State, schedule: dict[str, Tensor], clients: ClientMemory, occupied: NDArray[np.bool_]
    ) -> Progress:
        """The progress before the first round.

        Args:
            state: the initial models.
            schedule: state of the schedule before the first round.
            clients: memory of the clients, in which nothing is stored yet.
            occupied: (T,) False for idle slots.
        """
        trials, members = len(occupied), int(occupied.sum())
        return Progress(state, schedule, Counters.zero(trials), occupied, np.full(trials, np.nan), clients, members)

    def rows(self) -> list[dict[str, Any]]:
        """The contents of a checkpoint for each member, by slot: copied tensors and plain types."""
        return [self._row(slot) for slot in range(self.members)]

    def load(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Restores the state in `rows`.

        A member may come from another pack, with tensors of another size: the ring buffer of a schedule is as long as
        the longest window of its pack, and an optimizer has no memory if no trial has momentum. A member does not use
        surplus numbers of its row; missing ones start as in a new pack.

        Args:
            rows: from `rows`, for every member by slot, with tensors on the CPU.
        """
        state = self.state
        self.state = replace(
            state,
            params=_filled({"params": state.params}, rows)["params"],
            optimizer_memory={
                role: _filled(memory, [row["optimizers"][role] for row in rows])
                for role, memory in state.optimizer_memory.items()
            },
            memory=_filled(state.memory, [row["memory"] for row in rows]),
        )
        self.schedule = _filled(self.schedule, [row["schedule"] for row in rows])
        self.clients.load([row["clients"] for row in rows])
        self.alive, self.first_loss = self.alive.copy(), self.first_loss.copy()
        for slot, row in enumerate(rows):
            self.alive[slot], self.first_loss[slot] = row["alive"], row["first_loss"]
            for name, total in row["counters"].items():
                self.counters.totals[name][slot] = total

    def follow(self, leader: Progress, schedule: dict[str, Tensor]) -> None:
        """Advances by the round that `leader` has trained; both were the same before.

        Args:
            leader: progress after the round. Its tensors are shared, since rounds change none in place.
            schedule: own state of the schedule after the round.
        """
        self.counters.follow(leader.counters)
        self.state, self.first_loss, self.clients = leader.state, leader.first_loss, leader.clients
        if leader.alive.all():
            self.schedule = schedule
        self.alive = leader.alive

    def _row(self, slot: int) -> dict[str, Any]:
        def own(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor[slot].clone() for name, tensor in tensors.items()}

        return {
            "params": self.state.params[slot].clone(),
            "optimizers": {role: own(memory) for role, memory in self.state.optimizer_memory.items()},
            "memory": own(self.state.memory),
            "clients": self.clients.row(slot),
            "schedule": own(self.schedule),
            "alive": bool(self.alive[slot]),
            "first_loss": float(self.first_loss[slot]),
            "counters": {name: int(total[slot]) for name, total in self.counters.totals.items()},
        }

    def survivors(self, shown: NDArray[np.float64], explosion: float) -> NDArray[np.bool_]:
        """(T,) trials that are alive after this round: those that do not diverge in it.

        Args:
            shown: (numbers, T) of the round: the training loss, then numbers that must be finite as well.
            explosion: largest increase over the first loss, as a multiple of max(1, |first loss|).
        """
        alive, first = self.alive.tolist(), self.first_loss.tolist()  # few numbers: faster than arrays
        for trial, (loss, *others) in enumerate(shown.T.tolist()):
            if math.isnan(first[trial]):
                first[trial] = loss
            allowed = first[trial] + explosion * max(1.0, abs(first[trial]))
            alive[trial] &= math.isfinite(loss + sum(others)) and loss <= allowed
        self.first_loss = np.array(first)
        return np.array(alive)

    def move(
        self, state: State, schedule: dict[str, Tensor], alive: NDArray[np.bool_], cohort: NDArray[np.int64]
    ) -> None:
        """Advances by one round; trials that are not alive keep their old state.

        Args:
            state: state after the round.
            schedule: state of the schedule after the round.
            alive: (T,) after the round.
            cohort: (M,) client ids of the round, or (M, T) if trials have cohorts of their own.
        """
        self.clients.put(cohort, state.stored, alive)
        if state.stored:
            state = replace(state, stored={})
        if not alive.all():
            old = self.state
            params = _where(alive, {"params": state.params}, {"params": old.params})["params"]
            memory = _where(alive, state.memory, old.memory)
            optimizers = {
                role: _where(alive, new, old.optimizer_memory[role]) for role, new in state.optimizer_memory.items()
            }
            state = replace(state, params=params, optimizer_memory=optimizers, memory=memory)
            schedule = _where(alive, schedule, self.schedule)
        self.state, self.schedule, self.alive = state, schedule, alive


def _where(alive: NDArray[np.bool_], new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The new tensors, but with the old rows for trials that are not alive."""
    rows = torch.as_tensor(alive)
    return {
        name: torch.where(rows.to(tensor.device).view(-1, *[1] * (tensor.dim() - 1)), tensor, old[name])
        for name, tensor in new.items()
    }


def _filled(fresh: Mapping[str, Tensor], rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Copies of the tensors (T, ...) of a new pack, filled with the rows of its members as far as shapes overlap."""
    filled = {name: tensor.clone() for name, tensor in fresh.items()}
    for slot, row in enumerate(rows):
        for name in filled.keys() & row.keys():
            tensor, stored = filled[name], row[name]
            part = tuple(slice(min(sizes)) for sizes in zip(tensor.shape[1:], stored.shape, strict=True))
            tensor[slot][part].copy_(stored[part])
    return filled
