"""Batches of clients' examples. The data of all clients lie on the device once; batches are gathered by index.

Clients of a cohort are sorted by number of examples, largest first. Batches of fixed size form one group. Full batches
differ in size: neighbouring clients form a few groups, within which smaller batches are padded with examples of weight
0. Dynamic programming chooses the groups that minimize the examples to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine import randomness
from trainers.engine.memory import owned
from trainers.engine.oracles.oracle import Batch, DistinctExamples, Group, RoundBatches

_KEPT_BYTES = 1 << 26  # of batches, for all trials of a pack
_GROUP_COST = 64  # cost of one more group in calls, expressed in examples

Gather = Callable[[Tensor], Mapping[str, Tensor]]
"""Maps rows (m, examples) of the training data to the tensors that the model's oracles need."""
Vary = Callable[[Mapping[str, Tensor], Tensor], Mapping[str, Tensor]]
"""Maps a group's data and 64 random bits for each of its examples, (m, examples) int64, to the data of one step."""
_Chosen = tuple[
    NDArray[np.int64], NDArray[np.int64], Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]
]


def cuts(sizes: Sequence[int], group_cost: int = _GROUP_COST) -> list[int]:
    """Cuts clients into groups at the least cost, when each group is padded to its largest size.

    Args:
        sizes: examples of each client, largest first.
        group_cost: cost of one more group, in examples.

    Returns:
        First positions of the groups, then the number of clients.

    Examples:
        >>> cuts([100, 98, 3, 3, 2], group_cost=10)
        [0, 2, 5]
    """
    held = np.asarray(sizes, dtype=np.int64)
    count = len(held)
    if count > 0 and held[0] == held[-1]:
        return [0, count]
    best = np.zeros(count + 1, np.int64)
    previous = np.zeros(count + 1, np.int64)
    starts = np.arange(count)
    for stop in range(1, count + 1):
        costs = best[:stop] + (stop - starts[:stop]) * held[:stop] + group_cost
        previous[stop] = costs.argmin()
        best[stop] = costs[previous[stop]]
    bounds = [count]
    while bounds[-1] > 0:
        bounds.append(int(previous[bounds[-1]]))
    return bounds[::-1]


class ExampleSource:
    """The batches of a whole trial.

    Args:
        gather: maps rows of the training data to the data of a group.
        offsets: (clients,) first row of each client.
        sizes: (clients,) rows of each client.
        seed: seed of the trial.
        batch_size: examples per step; None is all data of the client.
        batching: "with_replacement" or "shuffled".
        like: a tensor with the type and device of the data.
        vary: randomizes the batch of each step (models/_dropout.py, models/_augmentation.py); None changes nothing.
    """

    def __init__(
        self,
        gather: Gather,
        offsets: NDArray[np.int64],
        sizes: NDArray[np.int64],
        seed: int,
        batch_size: int | None,
        batching: str,
        like: Tensor,
        vary: Vary | None = None,
    ) -> None:
        self.gather = gather
        self.vary = vary
        self.offsets = offsets
        self.sizes = sizes
        self.seed = seed
        self.batch_size = batch_size
        self.draw, self.purpose = {
            "with_replacement": (randomness.with_replacement, randomness.Purpose.BATCH),
            "shuffled": (randomness.shuffled, randomness.Purpose.SHUFFLE),
        }[batching]
        self.like = like
        self._full: tuple[bytes, Batch] | None = None

    def round(self, round_index: int, clients: NDArray[np.int64]) -> ExampleRound:
        """The batches of one round (from 0) for a cohort, given in any order."""
        order = np.lexsort((clients, -self.sizes[clients]))
        return ExampleRound(self, round_index, clients[order])

    def full(self, clients: NDArray[np.int64]) -> Batch:
        """All data of a cohort; cached while the cohort stays the same."""
        key = clients.tobytes()
        if self._full is None or self._full[0] != key:
            self._full = (key, self._gather_full(clients))
        return self._full[1]

    def _gather_full(self, clients: NDArray[np.int64]) -> Batch:
        sizes, offsets = self.sizes[clients], self.offsets[clients]
        edges = cuts(sizes.tolist())
        groups = []
        for start, stop in pairwise(edges):
            place = np.arange(sizes[start])
            inside = place < sizes[start:stop, None]
            rows = offsets[start:stop, None] + np.where(inside, place, 0)
            weights = owned(inside / sizes[start:stop, None], self.like)
            data = self.gather(torch.as_tensor(rows, device=self.like.device))
            groups.append(Group(start, stop, data, None if inside.all() else weights))
        return tuple(groups)


class ExampleRound:
    """The batches of one cohort in one round.

    Args:
        source: source of the trial.
        round_index: from 0.
        clients: (M,) client ids, sorted by number of examples, largest first.
    """

    def __init__(self, source: ExampleSource, round_index: int, clients: NDArray[np.int64]) -> None:
        self.source = source
        self.round_index = round_index
        self.clients = clients
        self.always_full = source.batch_size is None and source.vary is None
        self._base = randomness.key(source.seed, round_index, source.purpose)
        self._rows: Tensor | None = None
        self._distinct: dict[int, DistinctExamples] = {}
        self._words: Tensor | None = None

    def prepare(self, local_steps: int) -> None:
        """Draws the batches of the first `local_steps` steps at once. Later steps can still be requested."""
        source = self.source
        if source.batch_size is None or (self._rows is not None and self._rows.shape[0] >= local_steps):
            return
        if source.vary is not None:
            self._words = self._draw_words(0, local_steps, source.batch_size)
        sizes = source.sizes[self.clients]
        picked = source.draw(self._base, self.clients, sizes, local_steps, source.batch_size)
        rows = (picked + source.offsets[self.clients][:, None, None]).transpose(1, 0, 2)
        self._rows = torch.as_tensor(np.ascontiguousarray(rows), device=source.like.device)

    def epoch_steps(self, local_epochs: int) -> NDArray[np.int64]:
        """(M,) steps that each client needs for `local_epochs` passes over its own data, rounded up."""
        sizes = self.source.sizes[self.clients]
        batch_size = self.source.batch_size
        return np.full(len(sizes), local_epochs) if batch_size is None else -(-local_epochs * sizes // batch_size)

    def batch(self, step: int, clients: int) -> Batch:
        """The batches of one step (from 0) for the first `clients` clients."""
        source = self.source
        if source.batch_size is None:
            return self.full() if source.vary is None else self._varied(step)
        self.prepare(step + 1)
        assert self._rows is not None
        data = source.gather(self._rows[step, :clients])
        if source.vary is not None:
            assert self._words is not None
            data = source.vary(data, self._words[step, :clients])
        return (Group(0, clients, data),)

    def full(self) -> Batch:
        """All data of every client."""
        return self.source.full(self.clients)

    def distinct(self, steps: int) -> DistinctExamples | None:
        """The examples of the first `steps` steps; None for full or varied batches."""
        if self.source.batch_size is None or self.source.vary is not None:
            return None
        self.prepare(steps)
        assert self._rows is not None
        if steps not in self._distinct:
            self._distinct[steps] = self._distinct_of(self._rows[:steps].cpu().numpy())
        return self._distinct[steps]

    def _distinct_of(self, rows: NDArray[np.int64]) -> DistinctExamples:
        """Each of the rows (steps, M, batch_size) once."""
        device = self.source.like.device
        counts, slots, own = self._in_passes(rows) or self._drawn(rows)
        chosen, places = [], []
        for start, stop in pairwise(cuts(np.maximum.accumulate(counts[::-1])[::-1].tolist())):
            clients = np.arange(start, stop)[:, None]
            chosen.append(own(clients, np.minimum(np.arange(counts[start:stop].max()), counts[clients] - 1)))
            places.append(torch.as_tensor(np.ascontiguousarray(slots[:, start:stop]), device=device))
        gather = self.source.gather
        return DistinctExamples(chosen, places, lambda held: gather(torch.as_tensor(held, device=device)))

    def _in_passes(self, rows: NDArray[np.int64]) -> _Chosen | None:
        """`_drawn` if the steps are whole passes over each client's own rows; else None."""
        source, drawn = self.source, rows.shape[0] * rows.shape[2]
        sizes, offsets = source.sizes[self.clients], source.offsets[self.clients]
        if source.purpose != randomness.Purpose.SHUFFLE or (drawn % sizes).any() or (sizes < rows.shape[2]).any():
            return None
        return sizes, rows - offsets[:, None], lambda client, slot: offsets[client] + slot

    def _drawn(self, rows: NDArray[np.int64]) -> _Chosen:
        """Numbers (M,) of each client's distinct rows, the slots of rows among them, and the row of a client's slot.

        Clients own neighbouring rows, so rows sorted by client and row need one sort of (client's place, row).
        """
        clients, every = rows.shape[1], int(rows.max()) + 1
        owned_rows, slots = np.unique(rows + every * np.arange(clients)[:, None], return_inverse=True)
        counts = np.bincount(owned_rows // every, minlength=clients)
        first = np.cumsum(counts) - counts
        slots = slots.reshape(rows.shape) - first[:, None]
        return counts, slots, lambda client, slot: owned_rows[first[client] + slot] % every

    def _varied(self, step: int) -> Batch:
        """All data of every client, randomized for one step."""
        assert self.source.vary is not None
        full = self.full()
        words = self._draw_words(step, step + 1, int(self.source.sizes[self.clients].max()))[0]
        groups = []
        for group in full:
            examples = next(iter(group.data.values())).shape[1]
            data = self.source.vary(group.data, words[group.start : group.stop, :examples])
            groups.append(Group(group.start, group.stop, data, group.weights))
        return tuple(groups)

    def _draw_words(self, first: int, stop: int, examples: int) -> Tensor:
        """(steps, M, examples) int64 random bits."""
        base = randomness.key(self.source.seed, self.round_index, randomness.Purpose.VARIATION)
        words = randomness.words(base, self.clients, np.arange(first, stop), examples).transpose(1, 0, 2)
        return torch.as_tensor(np.ascontiguousarray(words).view(np.int64), device=self.source.like.device)


class Remembered:
    """The batches of a round, cached for the next trial up to a memory limit.

    Args:
        batches: batches of the round.
    """

    def __init__(self, batches: RoundBatches) -> None:
        self.batches = batches
        self.clients = batches.clients
        self.always_full = batches.always_full
        self._kept: dict[tuple[int, int], Batch] = {}
        self._room = _KEPT_BYTES

    def prepare(self, local_steps: int) -> None:
        """Draws the batches of the first `local_steps` steps."""
        self.batches.prepare(local_steps)

    def epoch_steps(self, local_epochs: int) -> NDArray[np.int64]:
        """(M,) steps of `local_epochs` passes."""
        return self.batches.epoch_steps(local_epochs)

    def batch(self, step: int, clients: int) -> Batch:
        """The batches of one step for the first `clients` clients."""
        key = (step, clients)
        if key in self._kept:
            return self._kept[key]
        batch = self.batches.batch(step, clients)
        self._room -= sum(held.nbytes for group in batch for held in group.data.values())
        if self._room > 0:
            self._kept[key] = batch
        return batch

    def full(self) -> Batch:
        """All data of every client."""
        return self.batches.full()

    def distinct(self, steps: int) -> DistinctExamples | None:
        """The examples of the first `steps` steps."""
        return self.batches.distinct(steps)
