"""Batches of clients' examples. The data of all clients lie on the device once; batches are gathered by index.

Clients of a cohort are sorted by number of examples, largest first; where some take a part of their steps only
(trainers/trial/stragglers.py), by number of steps. Mini-batches form one group; one that holds fewer
examples than others of its step is padded with its own last example, of weight 0. Full batches differ in size:
neighbouring clients form a few groups, within which smaller batches are padded too. Dynamic programming chooses the
groups that minimize the examples to compute.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine.batches.class_batches import ClassBatches
from trainers.engine.batches.mini_batches import Gather, MiniBatches, Vary, cuts, step_words
from trainers.engine.memory import owned
from trainers.engine.oracles.oracle import Batch, DistinctExamples, Group, RoundBatches, first_clients
from trainers.trial.passes import PassEnd, Passes

_KEPT_BYTES = 1 << 26  # bytes of cached batches, for all trials of a pack


class ExampleSource:
    """The batches of a whole trial.

    Args:
        gather: maps rows of the training data to the data of a group.
        offsets: (clients,) first row of each client.
        sizes: (clients,) rows of each client.
        seed: seed of the trial.
        batch_size: examples per step; None is all data of the client.
        batching: "with_replacement", "shuffled", "epochs" or "by_class".
        like: a tensor with the type and device of the data.
        vary: randomizes the batch of each step (models/_dropout.py, models/_augmentation.py); None changes nothing.
        end: what becomes of the examples that are left at the end of a pass.
        labels: (rows,) class of each row of the training data; only for "by_class".
        round_batches: batches of a client in a round, if its passes go on over the rounds ("epochs").
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
        end: PassEnd = "joined",
        labels: NDArray[Any] | None = None,
        round_batches: int | None = None,
    ) -> None:
        self.gather = gather
        self.vary = vary
        self.offsets = offsets
        self.sizes = sizes
        self.seed = seed
        self.batch_size = batch_size
        self.shuffles = {"with_replacement": False, "shuffled": True, "epochs": True, "by_class": True}[batching]
        self.round_batches = round_batches
        self.classes: ClassBatches | None = None
        if batching == "by_class":
            assert labels is not None
            self.classes = ClassBatches(offsets, sizes, labels)
        self.end = end
        self.like = like
        self._full: tuple[bytes, Batch] | None = None

    def round(
        self, round_index: int, clients: NDArray[np.int64], work: NDArray[np.float64] | None = None
    ) -> ExampleRound:
        """The batches of one round (from 0) for a cohort, given in any order.

        Args:
            round_index: from 0.
            clients: (M,) client ids.
            work: (M,) share of its steps that each client takes; None is all of them.
        """
        sizes = self.sizes[clients]
        if work is None:
            return ExampleRound(self, round_index, clients[np.lexsort((clients, -sizes))])
        planned = work
        if self.end != "joined":
            planned = work * Passes(sizes, self.batch_size or int(sizes.max()), self.end).steps
        order = np.lexsort((clients, -sizes, -planned))
        return ExampleRound(self, round_index, clients[order], work[order])

    def full(self, clients: NDArray[np.int64]) -> Batch:
        """All data of a cohort; cached while the cohort stays the same."""
        key = clients.tobytes()
        if self._full is None or self._full[0] != key:
            self._full = (key, self._gather_full(clients))
        return self._full[1]

    def _gather_full(self, clients: NDArray[np.int64]) -> Batch:
        sizes, offsets = self.sizes[clients], self.offsets[clients]
        edges = cuts(np.maximum.accumulate(sizes[::-1])[::-1].tolist())
        groups = []
        for start, stop in pairwise(edges):
            positions = np.arange(sizes[start:stop].max())
            inside = positions < sizes[start:stop, None]
            rows = offsets[start:stop, None] + np.where(inside, positions, 0)
            weights = owned(inside / sizes[start:stop, None], self.like)
            data = self.gather(torch.as_tensor(rows, device=self.like.device))
            groups.append(Group(start, stop, data, None if inside.all() else weights))
        return tuple(groups)


class ExampleRound:
    """The batches of one cohort in one round.

    Args:
        source: source of the trial.
        round_index: from 0.
        clients: (M,) client ids, sorted by number of steps, then of examples, largest first.
        work: (M,) share of its steps that each client takes; None is all of them.
    """

    def __init__(
        self,
        source: ExampleSource,
        round_index: int,
        clients: NDArray[np.int64],
        work: NDArray[np.float64] | None = None,
    ) -> None:
        self.source = source
        self.round_index = round_index
        self.clients = clients
        self.work = work
        sizes, batch_size = source.sizes[clients], source.batch_size
        largest = int(sizes.max())
        whole = batch_size is None or (source.shuffles and largest <= batch_size)
        repeats = batch_size is not None and not source.shuffles
        self._passes = Passes(sizes, batch_size or largest, source.end, repeats)
        self._drawn = None if whole else MiniBatches(source, round_index, clients, self._passes)
        self.always_full = whole and source.vary is None and work is None
        self._distinct: dict[int, DistinctExamples] = {}

    def prepare(self, local_steps: int, limits: NDArray[np.int64] | None = None) -> None:
        """Draws the batches of the first `local_steps` steps at once. Later steps can still be requested."""
        if self._drawn is not None:
            self._drawn.prepare(local_steps, limits)

    def epoch_steps(self, local_epochs: int) -> NDArray[np.int64]:
        """(M,) steps of `local_epochs` passes of each client over its own data."""
        return local_epochs * self._passes.steps

    @property
    def full_gradients(self) -> NDArray[np.int64]:
        """(M,) mini-batches that hold all data of each client."""
        return self._passes.in_pass

    @property
    def full_examples(self) -> NDArray[np.int64]:
        """(M,) examples of each client."""
        return self._passes.sizes

    def examples(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The examples in each client's first `steps` (..., M) batches."""
        return self._passes.examples(steps)

    def batch(self, step: int, clients: int) -> Batch:
        """The batches of one step (from 0) for the first `clients` clients."""
        if self._drawn is not None:
            return self._drawn.batch(step, clients)
        batch = self.full() if self.source.vary is None else self._varied(step)
        return batch if clients == len(self.clients) else first_clients(batch, clients)

    def full(self) -> Batch:
        """All data of every client."""
        return self.source.full(self.clients)

    def chosen(self, steps: int) -> tuple[Tensor, NDArray[np.int64]]:
        """((steps, M, batch_size) rows of the first steps, (M,) examples of each client's batches, which come first).

        For passes that do not end, of clients that take all steps.
        """
        if self._drawn is not None:
            return self._drawn.chosen(steps)
        sizes, offsets = self._passes.sizes[:, None], self.source.offsets[self.clients][:, None]
        slots = np.arange(self.source.batch_size or sizes.max())
        rows = torch.as_tensor(offsets + np.where(slots < sizes, slots, 0), device=self.source.like.device)
        return rows.expand(steps, -1, -1), self._passes.sizes

    def distinct(self, steps: int) -> DistinctExamples | None:
        """The examples of the first `steps` steps; None for full or varied batches."""
        if self._drawn is None or self.source.vary is not None:
            return None
        if steps not in self._distinct:
            self._distinct[steps] = self._drawn.distinct(steps)
        return self._distinct[steps]

    def _varied(self, step: int) -> Batch:
        """All data of every client, randomized for one step."""
        assert self.source.vary is not None
        full = self.full()
        words = step_words(self.source, self.round_index, self.clients, np.array([step]), int(self._passes.sizes.max()))
        groups = []
        for group in full:
            examples = next(iter(group.data.values())).shape[1]
            data = self.source.vary(group.data, words[group.start : group.stop, :examples])
            groups.append(Group(group.start, group.stop, data, group.weights))
        return tuple(groups)


class Remembered:
    """The batches of a round, cached for the next trial up to a memory limit.

    Args:
        batches: batches of the round.
    """

    def __init__(self, batches: RoundBatches) -> None:
        self.batches = batches
        self.clients, self.work = batches.clients, batches.work
        self.always_full = batches.always_full
        self._kept: dict[tuple[int, int], Batch] = {}
        self._room = _KEPT_BYTES

    def prepare(self, local_steps: int, limits: NDArray[np.int64] | None = None) -> None:
        """Draws the batches of the first `local_steps` steps."""
        self.batches.prepare(local_steps, limits)

    def epoch_steps(self, local_epochs: int) -> NDArray[np.int64]:
        """(M,) steps of `local_epochs` passes."""
        return self.batches.epoch_steps(local_epochs)

    @property
    def full_gradients(self) -> NDArray[np.int64]:
        """(M,) mini-batches that hold all data of each client."""
        return self.batches.full_gradients

    @property
    def full_examples(self) -> NDArray[np.int64]:
        """(M,) examples of each client."""
        return self.batches.full_examples

    def examples(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The examples in each client's first `steps` (..., M) batches."""
        return self.batches.examples(steps)

    def batch(self, step: int, clients: int) -> Batch:
        """The batches of one step for the first `clients` clients."""
        key = (step, clients)
        if key in self._kept:
            return self._kept[key]
        batch = self.batches.batch(step, clients)
        self._room -= sum(tensor.nbytes for group in batch for tensor in group.data.values())
        if self._room > 0:
            self._kept[key] = batch
        return batch

    def full(self) -> Batch:
        """All data of every client."""
        return self.batches.full()

    def distinct(self, steps: int) -> DistinctExamples | None:
        """The examples of the first `steps` steps."""
        return self.batches.distinct(steps)
