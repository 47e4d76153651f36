"""The mini-batches of one cohort in one round: rows of the training data, drawn at once and gathered step by step.

Rows are kept in the order of the steps. With passes that end, a client has rows only for the steps that it takes, so
that memory follows the examples that a round uses, not the largest client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.engine import randomness
from trainers.engine.batches.class_batches import ClassBatches
from trainers.engine.oracles.oracle import Batch, DistinctExamples, Group
from trainers.engine.randomness import Purpose
from trainers.trial.passes import Passes

_GROUP_COST = 64  # cost of one more group in calls, expressed in examples

Gather = Callable[[Tensor], Mapping[str, Tensor]]
"""Maps rows (m, examples) of the training data to the tensors that the model's oracles need."""
Vary = Callable[[Mapping[str, Tensor], Tensor], Mapping[str, Tensor]]
"""Maps a group's data and 64 random bits for each of its examples, (m, examples) int64, to the data of one step."""
Integers = NDArray[np.int64]
_Chosen = tuple[Integers, Integers, Callable[[Integers, Integers], Integers]]


class Drawn(Protocol):
    """What mini-batches are drawn from.

    Attributes:
        gather: maps rows of the training data to the data of a group.
        vary: randomizes the batch of each step; None changes nothing.
        offsets: (clients,) first row of each client.
        seed: seed of the trial.
        shuffles: whether batches are drawn without replacement.
        classes: the clients' classes, if batches are drawn by class; else None.
        round_batches: batches of a client in a round, if passes go on over rounds; None begins a new pass each round.
        like: a tensor with the type and device of the data.
    """

    gather: Gather
    vary: Vary | None
    offsets: Integers
    seed: int
    shuffles: bool
    classes: ClassBatches | None
    round_batches: int | None
    like: Tensor


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
    examples = np.asarray(sizes, dtype=np.int64)
    count = len(examples)
    if count > 0 and examples[0] == examples[-1]:
        return [0, count]
    best = np.zeros(count + 1, np.int64)
    previous = np.zeros(count + 1, np.int64)
    starts = np.arange(count)
    for stop in range(1, count + 1):
        costs = best[:stop] + (stop - starts[:stop]) * examples[:stop] + group_cost
        previous[stop] = costs.argmin()
        best[stop] = costs[previous[stop]]
    bounds = [count]
    while bounds[-1] > 0:
        bounds.append(int(previous[bounds[-1]]))
    return bounds[::-1]


class MiniBatches:
    """The mini-batches of one cohort in one round.

    Args:
        source: what they are drawn from.
        round_index: from 0.
        clients: (M,) client ids, sorted by number of examples, largest first.
        passes: how the clients' examples are cut into batches.
    """

    def __init__(self, source: Drawn, round_index: int, clients: Integers, passes: Passes) -> None:
        self._source = source
        self._round_index = round_index
        self._clients = clients
        self._passes = passes
        self._width = passes.batch_size
        self._uneven = False  # whether some batches hold fewer examples than others
        if source.round_batches is not None:
            self._base = randomness.key(source.seed, 0, Purpose.EPOCHS)
        else:
            purpose = Purpose.SHUFFLE if source.shuffles else Purpose.BATCH
            purpose = purpose if source.classes is None else Purpose.CLASSES
            self._base = randomness.key(source.seed, round_index, purpose)
        self._begun = round_index * (source.round_batches or 0) * self._width  # examples of epochs before this round
        self._taken = np.zeros(len(clients), np.int64)  # steps of each client that are drawn
        self._step = self._client = self._first = np.zeros(0, np.int64)

    def prepare(self, local_steps: int, limits: Integers | None = None) -> None:
        """Draws the batches of the first `local_steps` steps, or fewer, at once.

        Args:
            local_steps: number of steps.
            limits: (M,) most steps of each client, largest first; None is no limit.
        """
        steps = np.full(len(self._clients), local_steps)
        if limits is not None and self._passes.ends:
            steps = np.minimum(steps, limits)
        if (steps > self._taken).any():
            self._draw(np.maximum(steps, self._taken))

    def batch(self, step: int, clients: int) -> Batch:
        """The batches of one step (from 0) for the first `clients` clients."""
        if step >= self._taken[clients - 1]:
            self.prepare(step + 1)
        first = int(self._first[step])
        span = slice(first, first + clients)
        rows, weights, width = self._rows[span], None, self._width
        if self._uneven:
            counts = self._counts[span]
            width = int(counts.max())
            rows = rows[:, :width]
            if counts.min() < width:
                weights = (self._slots[:width] < self._held[span]) * self._shares[span]
        data = self._source.gather(rows)
        if self._source.vary is not None:
            data = self._source.vary(data, self._words[span, :width])
        return (Group(0, clients, data, weights),)

    def chosen(self, steps: int) -> tuple[Tensor, Integers]:
        """((steps, M, batch_size) rows of the first steps, (M,) examples of each client's batches, which come first).

        For passes that do not end.
        """
        self.prepare(steps)
        return self._rows.view(-1, len(self._clients), self._width)[:steps], self._passes.largest

    def _draw(self, taken: Integers) -> None:
        """Draws the first `taken` (M,) steps of each client."""
        source, longest, device = self._source, int(taken[0]), self._source.like.device
        busy = np.searchsorted(-taken, -np.arange(longest))
        self._taken, self._first = taken, np.cumsum(busy) - busy
        self._step = np.repeat(np.arange(longest), busy)
        self._client = np.arange(len(self._step)) - np.repeat(self._first, busy)
        counts = self._passes.counts(self._client, self._step)
        picked = self._ended(taken, counts) if self._passes.ends else self._joined(longest)
        rows = picked + source.offsets[self._clients][self._client, None]
        self._rows = torch.as_tensor(rows, device=device)
        self._uneven = bool((counts < self._width).any())
        if self._uneven:
            self._counts = counts
            self._held = torch.as_tensor(np.array(counts), device=device)[:, None]
            self._shares = 1 / self._held.to(source.like)
            self._slots = torch.arange(self._width, device=device)
        if source.vary is not None:
            self._words = step_words(source, self._round_index, self._clients[self._client], self._step, self._width)

    def _joined(self, steps: int) -> Integers:
        """Positions (steps M, batch_size) within the clients' examples, for passes that do not end with a batch."""
        draw = randomness.shuffled if self._source.shuffles else randomness.with_replacement
        draw = draw if self._source.classes is None else self._source.classes.draw
        if self._source.round_batches is not None:
            draw = partial(randomness.in_epochs, first=self._begun)
        picked = draw(self._base, self._clients, self._passes.sizes, steps, self._width)
        return np.ascontiguousarray(picked.transpose(1, 0, 2)).reshape(-1, self._width)

    def _ended(self, taken: Integers, counts: Integers) -> Integers:
        """Positions (batches, batch_size) for passes that end; a batch is filled up with its last example."""
        sizes, client = self._passes.sizes, self._client
        slots = np.minimum(np.arange(self._width), counts[:, None] - 1)
        if not self._source.shuffles:
            ids = self._clients[client, None]
            return randomness.positions(self._base, sizes[client, None], ids, self._step[:, None], slots)
        passes = -(-taken // self._passes.steps)
        permuted = randomness.permutations(self._base, self._clients, sizes, passes)
        begun, batch = np.divmod(self._step, self._passes.steps[client])
        first = np.cumsum(sizes * passes) - sizes * passes
        slots += (first[client] + begun * sizes[client] + batch * self._width)[:, None]
        return np.asarray(permuted[slots])

    def distinct(self, steps: int) -> DistinctExamples:
        """The distinct examples of the first `steps` steps."""
        if steps > self._taken[0]:
            self.prepare(steps)
        source, device = self._source, self._source.like.device
        stop = int(self._first[steps]) if steps < len(self._first) else len(self._step)
        client, step = self._client[:stop], self._step[:stop]
        rows = self._rows[:stop].cpu().numpy()
        counts, slots, rows_at = self._in_passes(rows, client, steps) or self._drawn(rows, client)
        chosen, places, weights = [], [], []
        for first, last in pairwise(cuts(np.maximum.accumulate(counts[::-1])[::-1].tolist())):
            clients = np.arange(first, last)[:, None]
            chosen.append(rows_at(clients, np.minimum(np.arange(counts[first:last].max()), counts[clients] - 1)))
            batches = np.flatnonzero((client >= first) & (client < last))
            at = step[batches], client[batches] - first
            shape = min(steps, int(self._taken[first])), last - first
            placed = np.zeros((*shape, self._width), np.int64)
            placed[at] = slots[batches]
            places.append(torch.as_tensor(placed, device=device))
            sizes = np.full(shape, self._width)
            if self._uneven:
                sizes[at] = self._counts[batches]
            inside = np.arange(self._width) < sizes[..., None]
            weights.append(None if inside.all() else torch.as_tensor(inside / sizes[..., None]).to(source.like))
        gather = source.gather
        return DistinctExamples(chosen, places, weights, lambda rows: gather(torch.as_tensor(rows, device=device)))

    def _in_passes(self, rows: Integers, client: Integers, steps: int) -> _Chosen | None:
        """What `_drawn` returns, without sorting, if the steps are passes over all rows of each client; else None."""
        sizes, offsets = self._passes.sizes, self._source.offsets[self._clients]
        if self._passes.ends:
            whole = bool((np.minimum(self._taken, steps) >= self._passes.steps).all())
        else:
            unpassed = (self._begun % sizes) | (steps * self._width % sizes)
            whole = not unpassed.any() and not (sizes < self._width).any()
        if not (self._source.shuffles and whole and self._source.classes is None):
            return None
        return sizes, rows - offsets[client, None], lambda client, slot: offsets[client] + slot

    def _drawn(self, rows: Integers, client: Integers) -> _Chosen:
        """(M,) number of distinct rows of each client, the slots of `rows` among them, and (client, slot) -> row.

        One sort of the numbers (largest row + 1) client + row sorts by client and row.
        """
        every = int(rows.max()) + 1
        owned_rows, slots = np.unique(rows + every * client[:, None], return_inverse=True)
        counts = np.bincount(owned_rows // every, minlength=len(self._clients))
        first = np.cumsum(counts) - counts
        slots = slots.reshape(rows.shape) - first[client, None]
        return counts, slots, lambda client, slot: owned_rows[first[client] + slot] % every


def step_words(source: Drawn, round_index: int, clients: Integers, steps: Integers, examples: int) -> Tensor:
    """(batches, examples) int64 random bits for the examples of some batches.

    Args:
        source: what the batches are drawn from.
        round_index: from 0.
        clients: client id of each batch, or one for all.
        steps: step of each batch, or one for all.
        examples: examples of a batch.
    """
    base = randomness.key(source.seed, round_index, Purpose.VARIATION)
    words = randomness.hashed(base, clients[:, None], steps[:, None], np.arange(examples, dtype=np.int64))
    return torch.as_tensor(words.view(np.int64), device=source.like.device)
