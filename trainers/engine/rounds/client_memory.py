"""Client memory: tensors and counters that every client of the population keeps from round to round.

Its owners are the method, with bare names, and the clients' optimizer with `state: keep`, quantised uploads and
fragments, with dotted names:

    variate                                     SCAFFOLD's control variate, a model-sized tensor
    client.mean, client.square, client.steps    Adam's means, and the number of steps that the client has taken
    upload.residual                             what quantised uploads have left (engine/rounds/quantised.py)
    fragments.unsent                            pseudo-gradients of other fragments (engine/rounds/fragments.py)

A method lists its names in `stored(hyper)`; all are tensors that start at 0. It reads the values of the cohort
(`cohort.stored`) and returns new ones (`state.store`). The local loop continues from the optimizer's memory, and the
cohort collects it. The pack writes both back. Clients that have not taken part yet take no space in a checkpoint.

Client memory lies on the device if it takes at most a quarter of its free memory. Otherwise it lies in the memory of
the computer (pinned, if the device is a GPU), and the cohort's share is copied to the device and back in every round.
Both give the same numbers. Writing a checkpoint takes another twice its size in the computer's memory. All of it
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
from trainers.errors import TooLargeError

_DEVICE_SHARE = 0.25  # of the free memory of a device
_HOST_SHARE = 0.9  # of the available memory of the computer
_CHECKPOINT_COPIES = 2
_COUNTER_BYTES = 8
_ASKED_BY = {
    "client": "client.state",
    "upload": "upload",
    "fragments": "fragments",
}  # owner -> the setting that asks for its memory
_WITHOUT = {
    "method": "a method without client states",
    "client.state": "client.state: reset",
    "upload": "upload: int8",
    "fragments": "fragments: 1",
}
_GIB = 1 << 30


@dataclass(frozen=True)
class Size:
    """The size of a memory.

    Args:
        tensors: tensors per client.
        clients: clients of the population.
        parameters: numbers per tensor, pads included.
        trials: trials of the pack.
        item_bytes: bytes per number.
        counters: counters per client.
    """

    tensors: int
    clients: int
    parameters: int
    trials: int
    item_bytes: int
    counters: int = 0

    @property
    def total(self) -> int:
        """Bytes."""
        client_bytes = self.tensors * self.parameters * self.item_bytes + self.counters * _COUNTER_BYTES
        return self.clients * self.trials * client_bytes


def place(size: Size, device_free: int | None, host_free: int | None, owner: str, path: str = "method") -> str:
    """Where a memory goes: "device" or "host".

    Args:
        size: size of the memory.
        device_free: free bytes of a device with its own memory; None if the device uses the computer's memory.
        host_free: bytes available to this process; None if unknown.
        owner: name of the method, and of the optimizer if it keeps its memory, for the error.
        path: dotted path of the setting that asks for the memory, for the error.

    Raises:
        TooLargeError: the memory fits nowhere.

    Examples:
        >>> size = Size(tensors=1, clients=1000, parameters=2**20, trials=4, item_bytes=4)
        >>> place(size, 80 * 2**30, 64 * 2**30, "feddyn"), place(size, 40 * 2**30, 64 * 2**30, "feddyn")
        ('device', 'host')
    """
    on_device = device_free is not None and size.total <= _DEVICE_SHARE * device_free
    needed = size.total * (_CHECKPOINT_COPIES + (not on_device))
    if host_free is not None and needed > _HOST_SHARE * host_free:
        raise TooLargeError(
            f"the client states of {owner} must fit into memory, got {size.total / _GIB:.3g} GiB ({size.clients} "
            f"clients x {size.parameters} parameters x {size.trials} trials x {size.tensors} of {size.item_bytes} "
            f"bytes; {needed / _GIB:.3g} GiB while a checkpoint is written), with {host_free / _GIB:.3g} GiB "
            "available: train fewer trials in a pack (resources.packs of a study), take fewer clients, a smaller "
            f"model or dtype float32, or {_WITHOUT[path]}",
            path,
        )
    return "device" if on_device or device_free is None else "host"


@dataclass(frozen=True)
class CohortMemory:
    """What the clients of a cohort keep, as of the start of a round.

    Args:
        values: by dotted name, (T, M, P) or for a counter (T, M, 1), client-major.
        met: (M, 1) True for clients that have stored something for the method before; (M, T) if trials have cohorts of
            their own.
    """

    values: Mapping[str, Tensor]
    met: NDArray[np.bool_]

    def of(self, owner: str = "") -> dict[str, Tensor]:
        """The values of one owner, by bare name; "" is the method, and a role is its optimizer."""
        return {
            bare: value for name, value in self.values.items() for prefix, bare in [_split(name)] if prefix == owner
        }


class ClientMemory:
    """The memory of the clients in a lane. T trials, N clients of the population, M of a cohort.

    Args:
        first: by dotted name, the value for a client that has stored nothing yet: (T, 1, P), or for a counter (T, 1, 1)
            integers.
        clients: N.
        owner: name of the method, and of the optimizer if it keeps its memory, for errors.
        host_free: returns the bytes available to this process.
        lanes: number of such memories in the pack; all of them must fit.
        idle: number of slots after the T trials, for which nothing is stored; `gather` returns zeros for them.
        cohorts: number of cohorts of a round: 1, or T if trials have cohorts of their own.

    Raises:
        TooLargeError: the memory is too large.
    """

    def __init__(
        self,
        first: Mapping[str, Tensor],
        clients: int,
        owner: str,
        host_free: Callable[[], int | None] = available_memory,
        *,
        idle: int = 0,
        lanes: int = 1,
        cohorts: int = 1,
    ) -> None:
        self._idle = idle
        self._first = dict(first)
        self._starts = {name for name, value in first.items() if bool(value.any())}  # names whose first value is not 0
        owners = {_split(name)[0] for name in first}
        self._seen = {owner: np.zeros((clients, cohorts), bool) for owner in sorted({"", *owners})}
        tensors = [value for value in first.values() if value.is_floating_point()]
        like = tensors[0] if tensors else torch.zeros((1, 1, 0))
        trials, _, parameters = like.shape
        self.device = like.device
        counters = len(first) - len(tensors)
        self.size = Size(len(tensors), clients, parameters, trials * lanes, like.element_size(), counters)
        cuda = self.device.type == "cuda"
        free = torch.cuda.mem_get_info(self.device)[0] if cuda else None
        path = next((asks for owner, asks in _ASKED_BY.items() if owner in owners), "method")
        self.place = place(self.size, free, host_free(), owner, path) if first else "device"
        where = self.device if self.place == "device" else torch.device("cpu")
        pinned = cuda and self.place == "host"
        self._held = {
            name: torch.zeros((clients, trials, value.shape[-1]), dtype=value.dtype, device=where, pin_memory=pinned)
            for name, value in first.items()
        }

    def gather(self, clients: NDArray[np.int64]) -> CohortMemory:
        """Copies of what a cohort's clients keep.

        Args:
            clients: (M,) client ids, or (M, T) if trials have cohorts of their own.
        """
        values = {}
        for name, stored in self._held.items():
            rows = _rows(stored, clients).to(self.device)
            if name in self._starts:
                seen = torch.as_tensor(self._met(_split(name)[0], clients), device=self.device)
                rows = torch.where(seen.unsqueeze(-1), rows, self._first[name].transpose(0, 1))
            if self._idle:
                rows = torch.cat([rows, rows.new_zeros((len(rows), self._idle, rows.shape[-1]))], 1)
            values[name] = rows.transpose(0, 1)
        return CohortMemory(values, self._met("", clients))

    def put(self, clients: NDArray[np.int64], values: Mapping[str, Tensor], alive: NDArray[np.bool_]) -> None:
        """Stores what a cohort's clients keep from now on.

        Args:
            clients: as in `gather`.
            values: by dotted name, shaped as in `gather`.
            alive: (T,); the other trials keep what they have.
        """
        if unknown := [name for name in values if name not in self._held]:
            raise RuntimeError(f"a method must list its client states in stored(hyper), got {unknown[0]} as well")
        for name, value in values.items():
            stored = self._held[name]
            running, value = alive[: stored.shape[1]], value[: stored.shape[1]]
            fresh = value.transpose(0, 1).to(stored.device)
            if not running.all():
                kept = torch.as_tensor(running, device=stored.device).view(1, -1, 1)
                fresh = torch.where(kept, fresh, _rows(stored, clients))
            seen, rows = self._seen[_split(name)[0]], torch.as_tensor(clients, device=stored.device)
            if clients.ndim == 1:
                stored.index_copy_(0, rows, fresh)
                seen[clients] = True
            else:
                stored[rows, torch.arange(stored.shape[1], device=stored.device)] = fresh
                np.put_along_axis(seen, clients, True, 0)

    def _met(self, owner: str, clients: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which clients of a cohort have stored something for an owner, as in CohortMemory."""
        seen = self._seen[owner]
        return seen[clients] if clients.ndim == 1 else np.take_along_axis(seen, clients, 0)

    def copy(self) -> ClientMemory:
        """A copy that shares no memory."""
        twin = copy.copy(self)
        twin._held = {name: tensor.clone() for name, tensor in self._held.items()}
        twin._seen = {owner: seen.copy() for owner, seen in self._seen.items()}
        return twin

    def row(self, trial: int) -> dict[str, Tensor]:
        """The contents of a checkpoint for one trial: copies of the memory of clients that have stored something."""
        seen = {
            owner: torch.from_numpy(np.flatnonzero(seen[:, trial % seen.shape[1]]))
            for owner, seen in self._seen.items()
        }
        kept = {f"of {name}": rows[seen[_split(name)[0]].to(rows.device), trial] for name, rows in self._held.items()}
        return {**{_seen_key(owner): ids for owner, ids in seen.items()}, **kept}

    def load(self, rows: Sequence[Mapping[str, Tensor]]) -> None:
        """Restores the state in `rows`.

        Args:
            rows: from `row`, for every trial, with tensors on the CPU. A name that a row lacks, because no trial of its
                pack needed it, is as at the start.
        """
        for seen in self._seen.values():
            seen[:] = False
        for stored in self._held.values():
            stored.zero_()
        for trial, row in enumerate(rows):
            for owner, seen in self._seen.items():
                seen[row[_seen_key(owner)].numpy(), trial % seen.shape[1]] = True
            for name, stored in self._held.items():
                ids = row[_seen_key(_split(name)[0])].to(stored.device)
                stored[ids, trial] = row.get(f"of {name}", self._first[name][trial]).to(stored)


def _rows(stored: Tensor, clients: NDArray[np.int64]) -> Tensor:
    """(M, T, numbers) of a cohort, of (N, T, numbers); clients (M,) or (M, T)."""
    ids = torch.as_tensor(clients, device=stored.device)
    if ids.dim() == 1:
        return stored.index_select(0, ids)
    return stored[ids, torch.arange(stored.shape[1], device=stored.device)]


def _split(name: str) -> tuple[str, str]:
    """(owner, bare name) of a dotted name; the owner of a bare one is the method, ""."""
    owner, _, bare = name.rpartition(".")
    return owner, bare


def _seen_key(owner: str) -> str:
    """Key of a checkpoint for the ids of the clients that have stored something for an owner."""
    return f"{owner}.seen" if owner else "seen"
