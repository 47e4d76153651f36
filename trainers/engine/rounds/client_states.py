"""Client states: model-sized tensors that every client of the population keeps from round to round.

A method that needs client states has a function `stored(hyper)`, which returns their names; all start at 0. The method
reads those of the cohort (`cohort.stored`) and returns new ones (`state.store`), which the pack writes back. Clients
that have not taken part yet take no space in a checkpoint.

Client states lie on the device if they take at most a quarter of its free memory. Otherwise they lie in the memory of
the computer (pinned, if the device is a GPU), and the cohort's share is copied to the device and back in every round.
Both give the same numbers. Writing a checkpoint takes another twice their size in the computer's memory. All of it
together must fit into nine tenths of the memory available to this process; otherwise the trial is refused before
training.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.memory import available_memory
from trainers.errors import SpecError

_DEVICE_SHARE = 0.25  # of the free memory of a device
_HOST_SHARE = 0.9  # of the available memory of the computer
_CHECKPOINT_COPIES = 2
_GIB = 1 << 30


@dataclass(frozen=True)
class Size:
    """The size of a store.

    Args:
        tensors: tensors per client.
        clients: clients of the population.
        parameters: numbers per tensor, pads included.
        trials: trials of the pack.
        item_bytes: bytes per number.
    """

    tensors: int
    clients: int
    parameters: int
    trials: int
    item_bytes: int

    @property
    def total(self) -> int:
        """Bytes."""
        return self.tensors * self.clients * self.parameters * self.trials * self.item_bytes


def place(size: Size, device_free: int | None, host_free: int | None, method: str) -> str:
    """Where a store goes: "device" or "host".

    Args:
        size: size of the store.
        device_free: free bytes of a device with its own memory; None if the device uses the computer's memory.
        host_free: bytes available to this process; None if unknown.
        method: name of the method, for the error.

    Raises:
        SpecError: the store fits nowhere.

    Examples:
        >>> size = Size(tensors=1, clients=1000, parameters=2**20, trials=4, item_bytes=4)
        >>> place(size, 80 * 2**30, 64 * 2**30, "feddyn"), place(size, 40 * 2**30, 64 * 2**30, "feddyn")
        ('device', 'host')
    """
    on_device = device_free is not None and size.total <= _DEVICE_SHARE * device_free
    needed = size.total * (_CHECKPOINT_COPIES + (not on_device))
    if host_free is not None and needed > _HOST_SHARE * host_free:
        raise SpecError(
            f"the client states of {method} must fit into memory, got {size.total / _GIB:.3g} GiB ({size.clients} "
            f"clients x {size.parameters} parameters x {size.trials} trials x {size.tensors} of {size.item_bytes} "
            f"bytes; {needed / _GIB:.3g} GiB while a checkpoint is written), with {host_free / _GIB:.3g} GiB "
            "available: train fewer trials in a pack (resources.packs of a study), take fewer clients, a smaller "
            "model or dtype float32, or a method without client states",
            "method",
        )
    return "device" if on_device or device_free is None else "host"


class ClientStore:
    """The store of a lane. T trials, N clients of the population, M of a cohort.

    Args:
        names: names of the tensors.
        clients: N.
        like: (T, 1, P), with the type and device of the models.
        method: name of the method, for errors.
        host_free: returns the bytes available to this process.
        stores: number of such stores in the pack; all of them must fit.
        idle: number of slots after the T trials, for which nothing is stored; `gather` returns zeros for them.

    Raises:
        SpecError: the store is too large for memory.
    """

    def __init__(
        self,
        names: Sequence[str],
        clients: int,
        like: Tensor,
        method: str,
        host_free: Callable[[], int | None] = available_memory,
        *,
        idle: int = 0,
        stores: int = 1,
    ) -> None:
        trials, _, parameters = like.shape
        self._idle = idle
        self.device = like.device
        self.size = Size(len(names), clients, parameters, trials * stores, like.element_size())
        cuda = self.device.type == "cuda"
        free = torch.cuda.mem_get_info(self.device)[0] if cuda else None
        self.place = place(self.size, free, host_free(), method) if names else "device"
        where = self.device if self.place == "device" else torch.device("cpu")
        shape, pinned = (clients, trials, parameters), cuda and self.place == "host"
        self._held = {name: torch.zeros(shape, dtype=like.dtype, device=where, pin_memory=pinned) for name in names}
        self._seen = np.zeros(clients, bool)

    def gather(self, clients: NDArray[np.int64]) -> dict[str, Tensor]:
        """Copies of the states of a cohort's clients, (T, M, P) each, client-major.

        Args:
            clients: (M,) client ids.
        """
        states = {}
        for name, held in self._held.items():
            own = held.index_select(0, torch.as_tensor(clients, device=held.device)).to(self.device)
            if self._idle:
                own = torch.cat([own, own.new_zeros((len(own), self._idle, own.shape[-1]))], 1)
            states[name] = own.transpose(0, 1)
        return states

    def met(self, clients: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(M,) True for clients of the cohort that have stored something before.

        Args:
            clients: (M,) client ids.
        """
        return self._seen[clients]

    def put(self, clients: NDArray[np.int64], values: Mapping[str, Tensor], alive: NDArray[np.bool_]) -> None:
        """Stores new states of a cohort's clients.

        Args:
            clients: (M,) client ids.
            values: (T, M, P) each.
            alive: (T,); the other trials keep their old states.
        """
        if unknown := [name for name in values if name not in self._held]:
            raise RuntimeError(f"a method must list its client states in stored(hyper), got {unknown[0]} as well")
        for name, value in values.items():
            held = self._held[name]
            rows = torch.as_tensor(clients, device=held.device)
            own, value = alive[: held.shape[1]], value[: held.shape[1]]
            fresh = value.transpose(0, 1).to(held.device)
            if not own.all():
                kept = torch.as_tensor(own, device=held.device).view(1, -1, 1)
                fresh = torch.where(kept, fresh, held.index_select(0, rows))
            held.index_copy_(0, rows, fresh)
        if values:
            self._seen[clients] = True

    def copy(self) -> ClientStore:
        """A copy that shares no memory."""
        twin = copy.copy(self)
        twin._held = {name: held.clone() for name, held in self._held.items()}
        twin._seen = self._seen.copy()
        return twin

    def row(self, trial: int) -> dict[str, Tensor]:
        """The contents of a checkpoint for one trial: copies of the states of clients that have stored something."""
        seen = torch.from_numpy(np.flatnonzero(self._seen))
        own = {f"of {name}": held[seen.to(held.device), trial] for name, held in self._held.items()}
        return {"seen": seen, **own}

    def load(self, rows: Sequence[Mapping[str, Tensor]]) -> None:
        """Restores the state in `rows`.

        Args:
            rows: from `row`, for every trial, with tensors on the CPU.
        """
        self._seen[:] = False
        for held in self._held.values():
            held.zero_()
        for trial, row in enumerate(rows):
            self._seen[row["seen"].numpy()] = True
            for name, held in self._held.items():
                held[row["seen"].to(held.device), trial] = row[f"of {name}"].to(held.device)
